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
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
)

// authority issues certificates for 127.0.0.1, and writes them to files.
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

// issue writes NAME.pem and NAME.key.
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
	// Servers in containers run as other users and read copies of it.
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// yaml returns the TLS section of an attach file.
func (a *authority) yaml() string {
	return fmt.Sprintf("tls: {ca: %s, cert: %s, key: %s}\n", a.file("ca.pem"), a.file("client.pem"), a.file("client.key"))
}

// client returns the configuration of a client with the authority's certificate.
func (a *authority) client() *tls.Config {
	pair, err := tls.LoadX509KeyPair(a.file("client.pem"), a.file("client.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "127.0.0.1"}
}

// refused starts a run that must end at once, with a message of one line and nothing written.
func (a attachedRun) refused(t *testing.T, access backends.Access, l backends.Lock, code int, why string) {
	t.Helper()
	p := a.begin(t, access, l, a.watched(t, &recorder{t: t, under: a.prefix}, access))
	if got := p.wait(t); got != code || !strings.Contains(p.stderr.String(), why) || strings.Count(strings.TrimSpace(p.stderr.String()), "\n") != 0 {
		t.Errorf("exit code %d, want %d and a line with %q\n%s", got, code, why, p.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(p.dir, "runs")); err == nil {
		t.Error("there is a run directory")
	}
}

// etcdUser turns authentication on, and creates a user with access to the prefix alone.
func etcdUser(t *testing.T, config clientv3.Config, password string) {
	t.Helper()
	c, err := clientv3.New(config)
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
		func() error { _, err := c.UserAdd(ctx, "bench", password); return err },
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

// freeAddress returns an address for a server that starts some seconds later. Its port is below the ephemeral range,
// so that no outgoing connection takes it meanwhile.
func freeAddress(t *testing.T) string {
	t.Helper()
	const lowest, ports = 20_000, 12_000
	for range 100 {
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+mathrand.IntN(ports)))
		if l, err := net.Listen("tcp", at); err == nil {
			_ = l.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return ""
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// accepts reports whether an address accepts connections.
func accepts(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}
