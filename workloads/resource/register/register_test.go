package register

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func by(user int, token lock.Token) resource.Access {
	return resource.Access{Lock: "lock-0", User: history.MakeUser(user, 0), Grant: uint32(token), Token: token}
}

// The leak of a fence that checks writes only, step by step: both holders read, then the old holder's write comes
// before the new holder's first write. It passes, is acknowledged, and is overwritten.
func TestFenceWritesLeaks(t *testing.T) {
	for _, c := range []struct {
		guard   string
		oldErr  error
		final   int64
		applied int64
	}{
		{resource.GuardNone, nil, 1, 2},
		{resource.GuardFenceWrites, nil, 1, 2},          // two acknowledged increments, but the counter is one
		{resource.GuardFence, resource.ErrFenced, 1, 1}, // the new holder's read has registered its token
	} {
		r := start(t, c.guard)
		older, newer := r.dial(), r.dial()
		ctx := t.Context()
		a, err := older.Read(ctx, by(0, 5))
		if err != nil {
			t.Fatal(err)
		}
		b, err := newer.Read(ctx, by(1, 6))
		if err != nil {
			t.Fatal(err)
		}
		if err := older.Write(ctx, by(0, 5), a+1); !errors.Is(err, c.oldErr) {
			t.Errorf("%s: the old holder's write ended with %v, want %v", c.guard, err, c.oldErr)
		}
		if err := newer.Write(ctx, by(1, 6), b+1); err != nil {
			t.Errorf("%s: the new holder's write ended with %v", c.guard, err)
		}
		err = older.Write(ctx, by(0, 5), 100) // now every fence has seen the new token in a write
		if (err != nil) != (c.guard != resource.GuardNone) {
			t.Errorf("%s: a late write ended with %v", c.guard, err)
		}
		r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 9, Do: wire.DoFinal}})
		got := r.Frame(wire.TypeResult).Result
		if c.guard == resource.GuardNone {
			c.final, c.applied = 100, 3
		}
		if got.ID != 9 || got.Outcome != wire.OutcomeOK || got.Value != c.final || got.Count != c.applied {
			t.Errorf("%s: final read is %+v, want value %d of %d writes", c.guard, got, c.final, c.applied)
		}
		r.Stop()
		refused := 0
		for i, e := range r.Events {
			if i > 0 && e.Seq <= r.Events[i-1].Seq {
				t.Fatalf("event %d is %+v", i, e)
			}
			if e.Phase == history.Fail {
				refused++
				if e.Kind != history.EffectWrite || e.Code != history.CodeFenced || e.Token != 5 || e.User.Client() != 0 {
					t.Errorf("%s: refused effect is %+v", c.guard, e)
				}
			}
		}
		if want := map[string]int{resource.GuardNone: 0, resource.GuardFenceWrites: 1, resource.GuardFence: 2}[c.guard]; refused != want {
			t.Errorf("%s: %d refusals on record, want %d", c.guard, refused, want)
		}
	}
}

func TestFenceRefusesMissingToken(t *testing.T) {
	r := start(t, resource.GuardFence)
	c := r.dial()
	if _, err := c.Read(t.Context(), by(0, lock.NoToken)); !errors.Is(err, resource.ErrFenced) || !strings.Contains(err.Error(), "wants a fencing token") {
		t.Errorf("read: %v", err)
	}
	if err := c.Write(t.Context(), by(0, lock.NoToken), 1); !errors.Is(err, resource.ErrFenced) {
		t.Errorf("write: %v", err)
	}
	if err := c.Write(t.Context(), by(0, 3), 1); err != nil { // the connection is still usable
		t.Error(err)
	}
	other := by(1, 2)
	other.Lock = "lock-1"
	if _, err := c.Read(t.Context(), other); err != nil { // each lock has its own tokens
		t.Error(err)
	}
	other.Lock = "lock-2"
	if _, err := c.Read(t.Context(), other); !errors.Is(err, resource.ErrRefused) {
		t.Errorf("an unknown lock: %v", err)
	}
	r.Stop()
}

// With many writers at once, the log has the order in which writes were applied, and the last of them is the final
// value.
func TestLogIsTheOrderOfArrival(t *testing.T) {
	r := start(t, resource.GuardNone)
	const users, each = 8, 100
	var wg sync.WaitGroup
	for u := range users {
		c := r.dial()
		wg.Go(func() {
			for i := range each {
				if err := c.Write(t.Context(), by(u, 1), int64(u*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	v, err := r.dial().Read(t.Context(), by(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	d := r.Stop()
	if len(r.Events) != users*each+1 || r.Events[users*each-1].Value != v || d.Dropped != 0 {
		t.Errorf("%d events; the last write is %d, the value %d", len(r.Events), r.Events[users*each-1].Value, v)
	}
}

// silent accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// listening never answers either. It calls heard for each connection on which a request arrives.
func listening(t *testing.T, heard func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				heard()
			}
			defer c.Close()
		}
	}()
	return l.Addr().String()
}

func TestUnknownOutcome(t *testing.T) {
	heard := make(chan struct{})
	c, err := register.Dial(t.Context(), resource.Target{Address: listening(t, func() { heard <- struct{}{} })})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	why := errors.New("the user gave up")
	for range 2 { // the second on a connection of its own
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-heard; cancel(why) }()
		if err := c.Write(ctx, by(0, 1), 1); !errors.Is(err, why) || lock.Certain(err) || errors.Is(err, resource.ErrRefused) {
			t.Errorf("got %v", err)
		}
	}
	gone := start(t, resource.GuardNone)
	c = gone.dial()
	gone.Stop()
	if err := c.Write(t.Context(), by(0, 1), 1); err == nil || errors.Is(err, lock.ErrNotSent) {
		t.Errorf("a connection that broke: %v", err)
	}
	if err := c.Write(t.Context(), by(0, 1), 1); !errors.Is(err, lock.ErrNotSent) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	r := start(t, resource.GuardNone)
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for line, want := range map[string]string{
		"what?": "no JSON object",
		`{"op":"add","lock":"lock-0","user":"client-1/0"}`:             "want read, check or write",
		`{"op":"read","lock":"lock-0","user":"me"}`:                    "client-1/0",
		`{"op":"read","lock":"lock-0","user":"client-1/0","token":-1}`: "token",
	} {
		if _, err := fmt.Fprintln(c, line); err != nil {
			t.Fatal(err)
		}
		answer, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var a reply
		if err := json.Unmarshal(answer, &a); err != nil || a.Outcome != wire.OutcomeFail || !strings.Contains(a.Error, want) {
			t.Errorf("%s: got %s, want %q", line, answer, want)
		}
	}
	// Half a line is no request.
	if _, err := fmt.Fprint(c, `{"op":"write","lock":"lock-0","user":"client-1/0","value":7}`); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // in which it would be carried out
	r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 1, Do: wire.DoFinal, Lock: 2}})
	if got := r.Frame(wire.TypeResult).Result; got.Outcome != wire.OutcomeFail {
		t.Errorf("final read of lock 2 of 2: %+v", got)
	}
	r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 2, Do: wire.DoAcquire}})
	if got := r.Frame(wire.TypeResult).Result; got.Outcome != wire.OutcomeFail {
		t.Errorf("an acquire: %+v", got)
	}
	r.Stop()
	if len(r.Events) != 0 {
		t.Errorf("bad requests had effects: %+v", r.Events)
	}
}

func TestRegisterRefusesToStart(t *testing.T) {
	busy := silent(t)
	r := launch(t, busy)
	if got := r.Frame(wire.TypeFailed).Failed.Error; !strings.Contains(got, "address already in use") {
		t.Errorf("got %q", got)
	}
	if err := <-r.Result; err == nil {
		t.Error("it ended well")
	}
	r = launch(t, "127.0.0.1:0")
	r.Frame(wire.TypeHello)
	r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Guard: "dog", Format: wire.FormatRecords}})
	if got := r.Frame(wire.TypeFailed).Failed.Error; !strings.Contains(got, `guard is "dog"`) {
		t.Errorf("got %q", got)
	}
	<-r.Result
}

func TestEndOfInputEndsTheRegister(t *testing.T) {
	r := start(t, resource.GuardNone)
	c := r.dial()
	if _, err := c.Read(t.Context(), by(0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := r.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.Result:
		if !errors.Is(err, wire.ErrSupervisorGone) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the register lives on")
	}
}
