package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	killing "github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// long returns a scenario with a load of some seconds, an expectation and entries of chaos.
func long(lasts, expect string, entries ...string) string {
	text := strings.Replace(scheduled(entries...), "for: 400ms", "for: "+lasts, 1)
	return strings.Replace(text, `double_grants: "0", `, expect, 1)
}

// slowAgent returns a testbed whose signals to a server take effect that much later, as if its agent did not run for
// a while.
func slowAgent(t *testing.T, by map[string]time.Duration) *testbed {
	return &testbed{t: t, kinds: killing.Kinds(), signalFails: func(node, signal string) error {
		if strings.HasPrefix(node, "server-") {
			time.Sleep(by[signal])
		}
		return nil
	}}
}

// wantLate fails the test unless exactly the first fault of a run is late, by these words; "": none is.
func wantLate(t *testing.T, got finishedRun, want string) {
	t.Helper()
	for i, f := range got.report.Faults {
		if i > 0 {
			want = ""
		}
		if f.Late != want {
			t.Errorf("%s on %s is late: %q, want %q; receipt %+v, healed %+v", f.Name, f.Target, f.Late, want, f.Receipt, f.Healed)
		}
	}
}

// TestAFaultThatSlips: a fault that bit or was undone late proves no zero. Late is more than the larger of 1 s and 10
// % of its time.
func TestAFaultThatSlips(t *testing.T) {
	t.Parallel()
	const zero = `double_grants: "0", `
	for _, c := range []struct {
		name         string
		stop, cont   time.Duration
		lasts, entry string
		late         string
	}{
		{"it bites and is undone in time", 0, 0, "9s", "at: 5s, for: 2s", ""},
		{"it bites a little late", 900 * time.Millisecond, 900 * time.Millisecond, "9s", "at: 5s, for: 2s", ""},
		{"it bites late", 5840 * time.Millisecond, 0, "9s", "at: 5s, for: 2s", "bit 5.84 s late"},
		{"it is undone late", 0, 4100 * time.Millisecond, "9s", "at: 5s, for: 2s", "was undone 4.10 s late"},
		{"late by less than 10 % of its time", 2900 * time.Millisecond, 2900 * time.Millisecond, "50s", "at: 5s, for: 30s", ""},
		{"late by more than 10 % of its time", 3100 * time.Millisecond, 0, "50s", "at: 5s, for: 30s", "bit 3.10 s late"},
		{"it bites when the load is over", 500 * time.Millisecond, 0, "9s", "at: 8700ms, for: 2s", "bit 200 ms after the end of the load"},
		{"it stands to the end, and that is undone late", 0, 4100 * time.Millisecond, "9s", "at: 5s", ""},
		{"it would stand beyond the end, and that is undone late", 0, 4100 * time.Millisecond, "9s", "at: 5s, for: 5s", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slowAgent(t, map[string]time.Duration{"STOP": c.stop, "CONT": c.cont})
			got := s.run(t.Context(), long(c.lasts, zero, "{use: pause, on: server-1, "+c.entry+"}"))
			wantLate(t, got, c.late)
			if c.late == "" {
				s.wantVerdict(got, results.Pass)
				return
			}
			s.wantVerdict(got, results.Unknown, "pause on server-1 "+c.late)
		})
	}
}

// TestOneInjectionInTimeIsEnough for what rests on its entry; the late ones are reported.
func TestOneInjectionInTimeIsEnough(t *testing.T) {
	t.Parallel()
	s := slowAgent(t, nil)
	slow := 3 * time.Second
	s.signalFails = func(_, signal string) error {
		if signal == "STOP" {
			time.Sleep(slow)
			slow = 0
		}
		return nil
	}
	got := s.run(t.Context(), long("20s", `double_grants: "0", `, "{use: pause, on: server-1, at: 1s, for: 1s, every: 6s}"))
	wantLate(t, got, "bit 3 s late")
	s.wantVerdict(got, results.Pass)
	if !strings.Contains(strings.Join(got.report.Warnings, "\n"), "pause on server-1 bit 3 s late") {
		t.Errorf("the late one is not told: %q", got.report.Warnings)
	}
}

// TestWaitsByDesignAreNotLate: for a holder, for the injection before, and for measuring the links, before and after.
func TestWaitsByDesignAreNotLate(t *testing.T) {
	t.Parallel()
	waits := func(ctx context.Context, most, takes time.Duration) {
		defer clock.Waits(ctx, most)()
		time.Sleep(takes)
	}
	acts := func(ctx context.Context) {
		_, done := clock.Act(ctx)
		done()
	}
	for _, c := range []struct {
		name, entries string
		during        func(ctx context.Context)
		late          string
	}{
		{"measured for long, before and after", "{use: trouble, on: client-1, at: 2s, for: 3s}", func(ctx context.Context) {
			waits(ctx, 7*time.Second, 5*time.Second)
			acts(ctx)
			waits(ctx, 7*time.Second, 6300*time.Millisecond)
		}, ""},
		{"measured for longer than that may take, before", "{use: trouble, on: client-1, at: 2s, for: 3s}", func(ctx context.Context) {
			waits(ctx, time.Second, 6*time.Second)
			acts(ctx)
		}, "bit 5 s late"},
		{"measured for longer than that may take, after", "{use: trouble, on: client-1, at: 2s, for: 3s}", func(ctx context.Context) {
			acts(ctx)
			waits(ctx, time.Second, 6*time.Second)
		}, "was undone 5.00 s late"},
		{"the holder comes late", "{use: pause, on: holder, at: 2s, for: 1s}", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slowAgent(t, nil)
			s.faults = map[string]*fakeFault{"trouble": {during: c.during}}
			s.scripts = map[string]script{"client-1": {begins: func(a *fakeNode) {
				a.pause(8 * time.Second)
				for a.pause(time.Millisecond) {
					a.grant()
					a.pause(200 * time.Millisecond)
					a.release()
				}
			}}}
			got := s.run(t.Context(), long("20s", `double_grants: "0", `, c.entries))
			wantLate(t, got, c.late)
			want := results.Pass
			if c.late != "" {
				want = results.Unknown
			}
			s.wantVerdict(got, want)
		})
	}
	s := slowAgent(t, nil)
	text := promising("overlap: never", "{use: pause, on: server-1, at: 1s, for: 6s}", "{use: pause, on: server-1, at: 2s, for: 2s}")
	text = strings.Replace(text, "for: 1500ms", "for: 20s", 1)
	got := s.run(t.Context(), text)
	wantLate(t, got, "")
	s.wantVerdict(got, results.Pass)
}

// TestCertainResultsDespiteALateFault: a demanded violation that was found, and a promise that was broken. A bound that
// is missed is not certain.
func TestCertainResultsDespiteALateFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string // of an expectation
		verdict    results.Verdict
	}{
		{"double_grants", ">0", results.Pass},
		{"double_grants", "0", results.Fail},
		{"overlapping_holds", ">0", results.Unknown},
		{"overlapping_holds", "0", results.Unknown},
		{"throughput_per_s", ">100000", results.Unknown},
		{"throughput_per_s", "<100000", results.Unknown},
		{"throughput_per_s", "<1", results.Unknown},
	} {
		t.Run(c.name+" "+c.want, func(t *testing.T) {
			t.Parallel()
			s := slowAgent(t, map[string]time.Duration{"CONT": 4100 * time.Millisecond})
			expect := fmt.Sprintf("%s: %q, ", c.name, c.want)
			text := strings.Replace(long("9s", expect, "{use: pause, on: server-1, at: 5s, for: 2s}"), "clients: 1", "clients: 2", 1)
			got := s.run(t.Context(), text)
			for _, x := range got.report.Expectations {
				if x.Name != c.name {
					continue
				}
				if x.Verdict != c.verdict || x.Verdict == results.Unknown && !strings.Contains(x.Reason, "pause on server-1 was undone 4.10 s late") {
					t.Errorf("%s: %q", x.Verdict, x.Reason)
				}
			}
		})
	}
}

// TestAStepThatSlips proves no zero either.
func TestAStepThatSlips(t *testing.T) {
	t.Parallel()
	for slow, late := range map[time.Duration]string{0: "", 3 * time.Second: "bit 3 s late"} {
		s := slowAgent(t, map[string]time.Duration{"STOP": slow})
		got := s.run(t.Context(), directed("{do: "+wire.DoAcquire+", user: A}", "{inject: pause, on: server-1, as: p}", "{heal: p}", "{do: release, user: A}"))
		wantLate(t, got, late)
		want := results.Pass
		if late != "" {
			want = results.Unknown
		}
		s.wantVerdict(got, want)
	}
}

// TestAServerThatIsStoppedFromOutside is reported. If it lasts longer than half of the TTL, zeros and bounds are
// unknown, and a broken promise still counts. Stops by a fault are not reported.
func TestAServerThatIsStoppedFromOutside(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, entry, double string
		lasts               time.Duration
		told                bool
		want                results.Verdict
	}{
		{"for 3 s", "", "0", 3 * time.Second, true, results.Unknown},
		{"for 1 s", "", "0", time.Second, true, results.Pass},
		{"for 3 s, and the lock is broken", "", "broken", 3 * time.Second, true, results.Fail},
		{"by a fault", "{use: pause, on: server-1, at: 2s, for: 3s}", "0", 0, false, results.Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slowAgent(t, nil)
			stops := func(a *fakeNode) {
				a.busy.Go(func() {
					if c.lasts > 0 && a.pause(2*time.Second) {
						_ = a.bed.signal("server-1", "STOP")
						a.pause(c.lasts)
						_ = a.bed.signal("server-1", "CONT")
					}
				})
				cycles(a)
			}
			s.scripts = map[string]script{"client-1": {begins: stops}}
			var entries []string
			if c.entry != "" {
				entries = []string{c.entry}
			}
			text := long("9s", `double_grants: "0", `, entries...)
			if c.double == "broken" {
				text = strings.Replace(text, "clients: 1", "clients: 2", 1)
			}
			got := s.run(t.Context(), text)
			s.wantVerdict(got, c.want)
			const told = "server-1 was stopped for"
			if strings.Contains(strings.Join(got.report.Warnings, "\n"), told) != c.told {
				t.Errorf("told %t: %q, %+v", !c.told, got.report.Warnings, got.env.Stopped)
			}
		})
	}
}
