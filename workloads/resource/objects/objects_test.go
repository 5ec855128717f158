package objects

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/resourcetest"
)

// A server of net/http lingers for half a second on a connection that it closes before reading the whole request.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// odd is a lock name that must not escape the store's own directory.
const odd = "../a b/%41?#"

// running is the store as its supervisor sees it.
type running struct {
	*resourcetest.Process
	t            *testing.T
	address, dir string
}

func start(t *testing.T) *running {
	t.Helper()
	r := &running{t: t, dir: t.TempDir()}
	r.Process = resourcetest.Start(t, func(in io.Reader, out io.Writer) error {
		return Main(context.Background(), resource.Options{Listen: "127.0.0.1:0", In: in, Out: out, Version: "test"}, r.dir)
	})
	r.Frame(wire.TypeHello)
	r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Name: name, Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", odd}, Record: true}})
	r.address = r.Frame(wire.TypeReady).Ready.Address
	return r
}

func dialed(t *testing.T, address, guard string) resource.Connection {
	t.Helper()
	c, err := dial(t.Context(), resource.Target{Address: address, Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *running) final(number int, value, applied int64) {
	r.t.Helper()
	r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 9, Do: wire.DoFinal, Lock: number}})
	if got := r.Frame(wire.TypeResult).Result; got.Outcome != wire.OutcomeOK || got.Value != value || got.Count != applied {
		r.t.Errorf("the final read is %+v, want %d of %d writes", got, value, applied)
	}
}

func by(user int, grant uint32) resource.Access {
	return resource.Access{Lock: odd, User: history.MakeUser(user, 0), Grant: grant, Token: lock.Token(grant)}
}

func read(t *testing.T, c resource.Connection, a resource.Access, want int64) {
	t.Helper()
	if v, err := c.Read(t.Context(), a); err != nil || v != want {
		t.Errorf("read %d, %v; want %d", v, err, want)
	}
}

func write(t *testing.T, c resource.Connection, a resource.Access, value int64, want error) {
	t.Helper()
	if err := c.Write(t.Context(), a, value); !errors.Is(err, want) {
		t.Errorf("a write of %d ended with %v, want %v", value, err, want)
	}
}

// A write names what its grant has seen: an ETag, or the absence of an object. The effects are recorded in the order
// of arrival, refused ones with both versions.
func TestIfMatch(t *testing.T) {
	r := start(t)
	a, b := dialed(t, r.address, resource.GuardIfMatch), dialed(t, r.address, resource.GuardIfMatch)
	read(t, a, by(0, 5), 0)
	read(t, b, by(1, 6), 0)
	write(t, a, by(0, 5), 7, nil)                // If-None-Match: *
	write(t, b, by(1, 6), 8, resource.ErrFenced) // an object exists now
	write(t, a, by(0, 5), 7, nil)                // the grant knows its own write, and the same value is another version
	read(t, b, by(1, 6), 7)
	write(t, a, by(0, 5), 9, nil)
	write(t, b, by(1, 6), 10, resource.ErrFenced)
	write(t, a, by(0, 7), 11, resource.ErrFenced) // reads of another grant do not count
	r.final(1, 9, 3)
	r.final(0, 0, 0)
	r.Stop()

	var log []string
	for _, e := range r.Events {
		log = append(log, fmt.Sprintf("%s %s %d by %d", e.Kind, e.Phase, e.Value, e.Token))
	}
	want := []string{
		"effect-read ok 0 by 5", "effect-read ok 0 by 6", "effect-write ok 7 by 5", "effect-write fail 8 by 6", "effect-write ok 7 by 5",
		"effect-read ok 7 by 6", "effect-write ok 9 by 5", "effect-write fail 10 by 6", "effect-write fail 11 by 7", "final info 9 by 0", "final info 0 by 0",
	}
	if !slices.Equal(log, want) {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
	if len(r.Reasons) != 3 {
		t.Fatalf("%d reasons: %+v", len(r.Reasons), r.Reasons)
	}
	for i, e := range r.Reasons {
		if e.Code != history.CauseVersionChanged || e.Token != []uint64{0, 2, 0}[i] || e.Value != []int64{1, 3, 3}[i] || e.Lock != 1 {
			t.Errorf("reason %d is %+v", i, e)
		}
	}
	files, err := os.ReadDir(r.dir)
	if err != nil || len(files) != 1 || files[0].Name() != "lock-1" {
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// A plain PUT replaces the current object.
func TestPlainPut(t *testing.T) {
	r := start(t)
	a, b := dialed(t, r.address, resource.GuardNone), dialed(t, r.address, resource.GuardNone)
	read(t, a, by(0, 5), 0)
	read(t, b, by(1, 6), 0)
	write(t, b, by(1, 6), 1, nil)
	write(t, a, by(0, 5), 1, nil)
	r.final(1, 1, 2)
	r.Stop()
}

// Many users increment and retry after a refusal: no acknowledged update is lost.
func TestNoUpdateIsLost(t *testing.T) {
	r := start(t)
	const users, each = 6, 15
	var wg sync.WaitGroup
	for u := range users {
		c := dialed(t, r.address, resource.GuardIfMatch)
		wg.Go(func() {
			for done := 0; done < each; {
				v, err := c.Read(t.Context(), by(u, 1))
				if err == nil {
					err = c.Write(t.Context(), by(u, 1), v+1)
				}
				switch {
				case err == nil:
					done++
				case !errors.Is(err, resource.ErrFenced):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.final(1, users*each, users*each)
	r.Stop()
	stands := int64(0)
	for _, e := range r.Events {
		if e.Kind == history.EffectWrite && e.Phase == history.Ok {
			stands++
			if e.Code != history.CodeConditional {
				t.Fatalf("%+v does not say that it was conditional", e)
			}
		}
		if e.Phase == history.Ok && e.Value != stands {
			t.Fatalf("%+v is out of order, %d stands there", e, stands)
		}
	}
}

// Requests of other HTTP clients.
func TestStatus(t *testing.T) {
	r := start(t)
	for i, c := range []struct {
		method, path, body, header string
		status                     int
		etag                       string
	}{
		{"GET", "/lock-0", "", "", http.StatusNotFound, ""},
		{"PUT", "/lock-0", "1", `If-Match: "1"`, http.StatusPreconditionFailed, ""},
		{"PUT", "/lock-0", "1", "If-None-Match: *", http.StatusOK, `"1"`},
		{"PUT", "/lock-0", "1", "If-None-Match: *", http.StatusPreconditionFailed, `"1"`},
		{"PUT", "/lock-0", "2", `If-Match: "1"`, http.StatusOK, `"2"`},
		{"GET", "/lock-0", "", "", http.StatusOK, `"2"`},
		{"PUT", "/lock-0", "3", `If-Match: "1", "2"`, http.StatusBadRequest, ""},
		{"PUT", "/lock-0", "3", `If-None-Match: "1"`, http.StatusBadRequest, ""},
		{"PUT", "/lock-0", "three", "", http.StatusBadRequest, ""},
		{"PUT", "/lock-0", strings.Repeat("1", maxBody+1), "", http.StatusBadRequest, ""},
		{"PUT", "/lock-0", "3", headerUser + ": nobody", http.StatusBadRequest, ""},
		{"PUT", "/lock-7", "3", "", http.StatusBadRequest, ""},
		{"DELETE", "/lock-0", "", "", http.StatusMethodNotAllowed, ""},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+r.address+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Close = true
		q.Header = http.Header{headerUser: {"client-1/0"}, headerGrant: {"1"}, headerToken: {"0"}}
		if key, value, ok := strings.Cut(c.header, ": "); ok {
			q.Header.Set(key, value)
		}
		got, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != c.status || got.Header.Get("ETag") != c.etag {
			t.Errorf("request %d was answered %s, ETag %s; want %d, %s", i, got.Status, got.Header.Get("ETag"), c.status, c.etag)
		}
	}
	r.final(0, 2, 2)
	r.Stop()
}

// A failed store is not recorded, its outcome is unknown to the user, and the previous object stays.
func TestStoreFails(t *testing.T) {
	r := start(t)
	c := dialed(t, r.address, resource.GuardNone)
	write(t, c, by(0, 1), 7, nil)
	if err := os.Mkdir(filepath.Join(r.dir, "lock-1.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	unknown(t, c.Write(t.Context(), by(0, 1), 8))
	r.final(1, 7, 1)
	r.Stop()
}

// unknown checks that an error leaves the outcome of a write unknown.
func unknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, resource.ErrFenced) || errors.Is(err, resource.ErrRefused) || lock.Certain(err) {
		t.Errorf("the write ended with %v, of which nobody can know", err)
	}
}

// A write whose connection breaks is sent once, with an unknown outcome. One that finds no store was certainly not
// sent.
func TestBrokenConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests := make(chan string, 9)
	go func() {
		defer close(requests)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			for range 2 { // the first one is answered
				q, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, q.Body)
				requests <- q.Method
				if q.Method == http.MethodGet {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nETag: \"4\"\r\nContent-Length: 1\r\n\r\n3")
				}
			}
			_ = conn.Close()
		}
	}()
	c := dialed(t, l.Addr().String(), resource.GuardIfMatch)
	read(t, c, by(0, 1), 3)
	unknown(t, c.Write(t.Context(), by(0, 1), 4))

	got := []string{<-requests, <-requests}
	late, cancel := context.WithCancel(t.Context())
	sent := make(chan string, 1)
	go func() { sent <- <-requests; cancel() }()
	unknown(t, dialed(t, l.Addr().String(), resource.GuardNone).Write(late, by(0, 1), 4)) // it gets no answer
	got = append(got, <-sent)
	_ = l.Close()
	write(t, dialed(t, l.Addr().String(), resource.GuardNone), by(0, 1), 4, lock.ErrNotSent)
	for q := range requests {
		got = append(got, q)
	}
	if want := []string{"GET", "PUT", "PUT"}; !slices.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}
