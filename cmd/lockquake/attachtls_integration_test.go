//go:build integration

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/wait"
)

// authority makes certificates for 127.0.0.1, and writes them as files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, dir: t.TempDir(), key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's own"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	a.issue("server")
	a.issue("client")
	return a
}

// issue makes NAME.pem and NAME.key.
func (a *authority) issue(name string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	der, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "PRIVATE KEY", der)
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// yaml is what an attach file says of TLS.
func (a *authority) yaml() string {
	return fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}\n", a.file("ca.pem"), a.file("client.pem"), a.file("client.key"))
}

// config is that of a server, which demands a certificate of its clients.
func (a *authority) config() *tls.Config {
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"}}
}

// terminate puts TLS before the server at an address.
func (a *authority) terminate(t *testing.T, _ *recorder, access backends.Access, _, address string) string {
	config := a.config()
	return serveEach(t, "127.0.0.1", func(c net.Conn) {
		defer c.Close()
		if access.Backend == "postgres" { // which is asked for TLS in its own protocol, by eight bytes
			if _, err := io.CopyN(io.Discard, c, 8); err != nil {
				return
			}
			_, _ = io.WriteString(c, "S")
		}
		inner := tls.Server(c, config)
		server, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer server.Close()
		go func() { _, _ = io.Copy(inner, server); _ = c.Close() }()
		_, _ = io.Copy(server, inner)
	})
}

// TestAttachByTLS runs on services behind TLS with certificates on both sides and passwords, and is refused where the server's certificate
// is not to be trusted, and where the prefix is occupied.
func TestAttachByTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	for _, a := range attachedRuns {
		if a.backend == "sentinel" {
			continue // clients go where the Sentinels say: TestAttachSentinelByTLS
		}
		t.Run(a.backend, func(t *testing.T) {
			access, end := servers(t, "local", a.backend, a.up)
			defer end()
			switch a.backend {
			case "etcd":
				access.Password = "open sesame"
				a.yaml += "user: bench\n"
				etcdUser(t, access)
			case "zookeeper":
				access.Password = "open sesame"
				a.yaml += "user: bench\n"
			}
			t.Setenv("BENCH_PASSWORD", access.Password)
			a.watch, a.least = ours.terminate, 0
			trusting, distrusting := a, a
			trusting.yaml += ours.yaml()
			distrusting.yaml += theirs.yaml()
			for _, b := range all.All() {
				if b.Name == a.backend {
					trusting.run(t, access, b.Locks[0])
					distrusting.refused(t, access, b.Locks[0], codeMissing, "certificate")
				}
			}
		})
	}
}

// refused starts a run that must end at once, with one line and nothing written.
func (a attachedRun) refused(t *testing.T, access backends.Access, l backends.Lock, code int, why string) {
	t.Helper()
	at := map[string][]string{}
	for _, n := range access.Nodes {
		at["client"] = append(at["client"], a.watch(t, nil, access, "client", n.Addresses["client"]))
	}
	p := a.begin(t, access, l, at)
	if got := p.wait(t); got != code || !strings.Contains(p.stderr.String(), why) || strings.Count(strings.TrimSpace(p.stderr.String()), "\n") != 0 {
		t.Errorf("exit code %d, want %d and a line with %q\n%s", got, code, why, p.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(p.dir, "runs")); err == nil {
		t.Error("there is a run directory")
	}
}

// etcdUser makes the servers ask for a login, and gives one that may touch nothing but the prefix.
func etcdUser(t *testing.T, access backends.Access) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: access.Addresses("client"), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := c.RoleAdd(ctx, "bench"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "bench", "bench/", clientv3.GetPrefixRangeEnd("bench/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, "bench", access.Password); return err },
		func() error { _, err := c.UserGrantRole(ctx, "bench", "bench"); return err },
		func() error { _, err := c.UserAdd(ctx, "root", "of all"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttachSentinelByTLS has a Redis and a Sentinel that speak TLS by themselves, each with a password of its own, and a user who may
// touch nothing but the prefix.
func TestAttachSentinelByTLS(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skipf("there is no redis-server on PATH: %v", err)
	}
	ours := newAuthority(t)
	files := []string{
		"port 0", "bind 127.0.0.1", "tls-cert-file " + ours.file("server.pem"), "tls-key-file " + ours.file("server.key"),
		"tls-ca-cert-file " + ours.file("ca.pem"), "tls-replication yes",
	}
	server, watch := freeAddress(t), freeAddress(t)
	start(t, server, append(files, "tls-port "+portOf(server), `save ""`, "requirepass of-all", "user bench on >sesame ~bench:* &* +@all"))
	start(t, watch, append(files, "tls-port "+portOf(watch), "requirepass other", "sentinel monitor mymaster 127.0.0.1 "+portOf(server)+" 1",
		"sentinel auth-pass mymaster of-all"), "--sentinel")
	t.Setenv("BENCH_PASSWORD", "sesame")
	t.Setenv("BENCH_SENTINEL", "other")
	a := attachedRun{
		backend: "sentinel", prefix: "bench:",
		yaml:  "user: bench\n" + ours.yaml() + "sentinels:\n  master: mymaster\n  endpoints: [%s]\n  password: {env: BENCH_SENTINEL}\n",
		watch: func(_ *testing.T, _ *recorder, _ backends.Access, _, address string) string { return address },
	}
	access := backends.Access{Nodes: []backends.Endpoint{
		{Addresses: map[string]string{"client": server}}, {Addresses: map[string]string{"sentinel": watch}},
	}}
	access.Password = "sesame"
	for _, b := range all.All() {
		for _, l := range b.Locks {
			if b.Name == "sentinel" && (l.Name == b.Locks[0].Name || l.Name == "rueidislock") {
				t.Run(l.Name, func(t *testing.T) { a.run(t, access, l) })
			}
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// start starts a redis-server and waits until it listens.
func start(t *testing.T, address string, config []string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(strings.Join(append(config, "dir "+dir), "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out log
	cmd := exec.Command("redis-server", append([]string{file}, args...)...)
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	listens := func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	if !wait.Within(20*time.Second, listens) {
		t.Fatalf("nobody listens at %s\n%s", address, out.String())
	}
}
