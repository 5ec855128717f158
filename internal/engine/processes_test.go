package engine

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// TestReading: the counters of servers, clients and the machine, dated midway between the question and the
// answers. A node without an answer is left out. Counters of attached servers include the requests of others.
func TestReading(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{false, true} {
		s := &testbed{t: t, own: true, scripts: map[string]script{
			"client-1": answering(map[string]*wire.Result{wire.DoNotifications: {Outcome: wire.OutcomeOK, Count: 7}}),
			"client-2": answering(map[string]*wire.Result{wire.DoNotifications: {Outcome: wire.OutcomeFail, Count: 8}}),
		}}
		s.counts = func() int64 {
			time.Sleep(10 * time.Millisecond)
			return 5
		}
		took := 10 * time.Millisecond
		want := results.Reading{Requests: map[string]int64{"server-1": 5}, Connections: map[string]int64{"server-1": 5}, Notifications: map[string]int64{"client-1": 7}}
		if attached {
			s.tune = func(r *run) { r.readings.counters.Attached = true }
			took, want.Requests, want.Connections = 0, nil, nil
		}
		before := machineCPU()
		env := s.run(t.Context(), strings.Replace(scheduled(), "clients: 1", "clients: 2", 1)).env
		got := env.Readings[0]
		if !maps.Equal(got.Requests, want.Requests) || !maps.Equal(got.Connections, want.Connections) || !maps.Equal(got.Notifications, want.Notifications) {
			t.Errorf("attached %t: %+v, want %+v", attached, got, want)
		}
		if len(got.CPU) != 1 || got.CPU[history.Engine] == 0 || got.Machine < before || got.Machine > machineCPU() {
			t.Errorf("processor time of %v, of the machine %d; goroutines have none of their own", got.CPU, got.Machine)
		}
		if at := time.Duration(env.Start - got.Time); at != 20*time.Millisecond+took/2 { // the workload is started 20 ms later
			t.Errorf("attached %t: it is dated %v before the start", attached, at)
		}
	}
}

// TestServersAreReadBeforeAKill: the next process counts from zero. A client's death does not affect the servers'
// counters.
func TestServersAreReadBeforeAKill(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]int{"server-1": 3, "client-1": 2} {
		killed := int64(0)
		kill := &fakeFault{kind: chaos.Kind{Kills: true}}
		kill.inject = func(chaos.Scope) (history.Receipt, error) {
			killed = clock.Now()
			return history.Receipt{Status: history.Installed}, nil
		}
		asked := int64(0)
		s := &testbed{t: t, faults: map[string]*fakeFault{"kill": kill}, counts: func() int64 {
			time.Sleep(time.Millisecond)
			return atomic.AddInt64(&asked, 1)
		}}
		got := s.run(t.Context(), scheduled("{use: kill, on: "+target+", at: 100ms}")).env.Readings
		if len(got) != want {
			t.Fatalf("a kill of %s: %d readings, want %d", target, len(got), want)
		}
		for i, r := range got {
			if r.Starts["server-1"] != 1 || i > 0 && r.Time <= got[i-1].Time {
				t.Errorf("a kill of %s: reading %d is %+v", target, i, r)
			}
		}
		if r := got[1]; want == 3 && (r.Time > killed || r.Time < killed-int64(2*time.Millisecond) || r.Requests["server-1"] == 0 || r.Connections["server-1"] == 0 || r.CPU != nil) {
			t.Errorf("killed at %d: the reading before is %+v", killed, r)
		}
	}
}

// TestAttachedServersAreForOwnClients: another program may not keep to the prefix. The resource is not asked.
func TestAttachedServersAreForOwnClients(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		s := &testbed{t: t, own: own, tune: func(r *run) { r.processes.Attached = true }}
		got := s.run(t.Context(), protected(registerNode))
		if own != (got.err == nil) || !own && !strings.HasPrefix(got.err.Error(), "client-1: it is not lockquake's own client") {
			t.Errorf("own clients %t: the run ended with %v", own, got.err)
		}
	}
}
