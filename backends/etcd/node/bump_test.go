package node

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/lockquake/lockquake/internal/node"
)

// started is generous: a busy machine may take each core away for a while.
const started = time.Minute

// TestBump: a member whose data were restored from a copy raises its revisions once, and keeps what it had written.
func TestBump(t *testing.T) {
	t.Chdir(t.TempDir()) // a socket's path must be short
	const by = 1_000_000
	flags := newFlags([]string{
		"--name", "etcd-1", "--data-dir=data", "--initial-cluster", "etcd-1=unix://localhost:1", "--initial-cluster-token", "t",
		"--initial-advertise-peer-urls", "unix://localhost:1",
	})
	before := put(t)
	for _, c := range []struct {
		name     string
		restored bool
		least    int64 // of the next revision
		most     int64
	}{
		{"its own data", false, before + 1, before + 10},
		{"a copy", true, before + by, before + by + 20},
		{"its own again", false, before + by + 1, before + by + 30},
	} {
		if c.restored {
			if err := os.WriteFile(node.RestoredMark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := flags.bump("1000000"); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if at := put(t); at < c.least || at > c.most {
			t.Errorf("%s: revision %d, want %d to %d", c.name, at, c.least, c.most)
		}
	}
}

// put starts the member, writes a key, stops it, and returns the revision of the write.
func put(t *testing.T) int64 {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.InitialClusterToken = "etcd-1", "data", "error", "t"
	peer, client := url.URL{Scheme: "unix", Host: "localhost:1"}, url.URL{Scheme: "unix", Host: "localhost:2"}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(started):
		t.Fatal("the member does not serve")
	}
	ctx, cancel := context.WithTimeout(t.Context(), started)
	defer cancel()
	r, err := e.Server.Put(ctx, &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// TestBadBumps: the error names bad input, and nothing is changed.
func TestBadBumps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, by := range []string{"", "0", "-1", "many"} {
		if err := newFlags([]string{"--data-dir", filepath.Join(dir, "data")}).bump(by); err == nil {
			t.Errorf("%q is taken", by)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, node.RestoredMark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newFlags([]string{"--data-dir", filepath.Join(dir, "data"), "--name", "etcd-1"}).bump("1"); err == nil {
		t.Error("there are no data, and no error")
	}
	if _, err := os.Stat(filepath.Join(dir, node.RestoredMark)); err != nil {
		t.Errorf("the mark of a restore that did not come to its end is gone: %v", err)
	}
}

// TestFlags: a flag is found in all its forms, and its value is not mistaken for a flag.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--bump-revision", "7", "--data-dir", "d"}, {"-bump-revision=7", "-data-dir=d"}, {"--data-dir", "d", "--bump-revision=7"},
	} {
		f := newFlags(args)
		by, ok := f.take(BumpFlag)
		if dir, _ := f.value("data-dir"); by != "7" || !ok || dir != "d" {
			t.Errorf("%v: by %q, %v, dir %q", args, by, ok, dir)
		}
		if _, again := f.take(BumpFlag); again || len(f.args) == len(args) {
			t.Errorf("%v: it is left in %v", args, f.args)
		}
	}
	if err := RunNode([]string{"--name", "etcd-1"}); err != ErrNoDataDir {
		t.Errorf("without a data directory: %v", err)
	}
}
