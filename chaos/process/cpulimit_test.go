package process

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// narrow is a node in a control group, which wants more than any quota.
type narrow struct {
	faulttest.Node
	cpus             float64
	others           int // other active limits
	idle             bool
	deaf, deafToHeal bool
	outside          int
	looks            int64
	gone             bool
}

func (n *narrow) Inspect(context.Context) (chaos.ProcessState, error) {
	return chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 1}, Time: clock.Now()}, nil
}

func (n *narrow) LimitCPU(_ context.Context, _ string, cpus float64) error {
	if !n.deaf {
		n.cpus = cpus
	}
	return nil
}

func (n *narrow) UnlimitCPU(context.Context, string) error {
	if !n.deafToHeal {
		n.cpus = 0.5 * float64(n.others)
	}
	return nil
}

func (n *narrow) CPULimited(context.Context) (CPULimited, error) {
	n.looks++
	out := CPULimited{CPUs: n.cpus, Periods: n.looks, Said: "quota", Limits: n.others, Outside: n.outside, Gone: n.gone, Time: clock.Now()}
	if n.cpus > 0 && !n.idle {
		out.Throttled, out.Waited = n.looks, time.Duration(n.looks)*time.Millisecond
	}
	return out, nil
}

func (n *narrow) scope() chaos.Scope { return chaos.Scope{On: []chaos.Node{n}} }

func TestCPULimit(t *testing.T) {
	n := &narrow{Node: "client-1"}
	heal, r, err := faulttest.New(t, Kinds(), "cpu-limit", "cpus: 0.05").Inject(t.Context(), n.scope())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "cpu-limit", r, history.Installed)
	if n.cpus != 0.05 || !strings.Contains(r.Evidence, "it was throttled in 1 of 1 periods, for 1ms") {
		t.Errorf("%v: %s", n.cpus, r.Evidence)
	}
	if r = faulttest.Healed(t, "its heal", heal); !strings.Contains(r.Evidence, "during the fault: it was throttled in 4 of 3 periods") {
		t.Error(r.Evidence)
	}
	n.others = 1
	heal = faulttest.Injected(t, "beside another", faulttest.New(t, Kinds(), "cpu-limit", "cpus: 0.05"), n.scope())
	if r = faulttest.Healed(t, "its heal", heal); !strings.Contains(r.Evidence, "1 other limits are active") {
		t.Error(r.Evidence)
	}
}

func TestCPULimitThatDidNotBite(t *testing.T) {
	for name, c := range map[string]struct {
		narrow
		want history.ReceiptStatus
		says string
	}{
		"nothing was done":   {narrow{deaf: true}, history.NotInstalled, "quota; before: quota"},
		"children are free":  {narrow{outside: 2}, history.NotInstalled, "but 2 of its processes are in other groups"},
		"it wants no more":   {narrow{idle: true}, history.Indeterminate, "it was not throttled within"},
		"a higher one holds": {narrow{deaf: true, cpus: 0.5}, history.NotInstalled, "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, r, err := faulttest.New(t, Kinds(), "cpu-limit", "cpus: 0.05").Inject(t.Context(), c.scope())
			if err != nil {
				t.Error(err)
			}
			faulttest.WantStatus(t, name, r, c.want)
			if !strings.Contains(r.Evidence, c.says) {
				t.Errorf("%q does not say %q", r.Evidence, c.says)
			}
		})
	}
}

func TestCPULimitThatIsNotHealed(t *testing.T) {
	n := &narrow{Node: "client-1", deafToHeal: true}
	heal := faulttest.Injected(t, "cpu-limit", faulttest.New(t, Kinds(), "cpu-limit", "cpus: 0.05"), n.scope())
	r, err := heal(t.Context())
	if err == nil {
		t.Error("a limit that still stands is no error")
	}
	faulttest.WantStatus(t, "its heal", r, history.NotInstalled)
	n.gone = true
	faulttest.Healed(t, "the heal of one that ended", heal)
}

func TestCPULimitIsRefused(t *testing.T) {
	for _, params := range []string{"{}", "cpus: 0.0001", "cpus: 0.05, for: 2s"} {
		if _, err := faulttest.Kind(t, Kinds(), "cpu-limit").New(faulttest.Decoding("{" + strings.Trim(params, "{}") + "}")); err == nil {
			t.Errorf("%s is taken", params)
		}
	}
}
