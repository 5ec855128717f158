package process

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// CanLimitCPU is the capability of a Throttler.
const CanLimitCPU chaos.Capability = "cpu-limit"

// Throttler is a node whose process and descendants can be limited to a share of a CPU.
type Throttler interface {
	chaos.Inspector
	// LimitCPU limits them to so many CPUs until UnlimitCPU with the same key. Of several limits the lowest applies.
	LimitCPU(ctx context.Context, key string, cpus float64) error
	// UnlimitCPU ends the limit.
	UnlimitCPU(ctx context.Context, key string) error
	// CPULimited asks the kernel, independently of the result of LimitCPU.
	CPULimited(ctx context.Context) (CPULimited, error)
}

// cpuLimit gives a process less CPU time than it wants, as a noisy neighbour or a container's quota does. The process
// runs in bursts: the kernel lets it run until its quota of a period is used up, and then not before the next period.
//
// Example: with 0.05 CPUs a client runs for 5 ms in each 100 ms. A renewal that takes 2 ms of work may be sent 95 ms
// late.
type cpuLimit struct {
	// CPUs is how many CPUs the target may use: 0.1 is a tenth of one.
	CPUs float64 `yaml:"cpus"`
}

// The kernel accepts no quota below 1 ms, and no period above 1 s.
const (
	minCPUs = 0.001
	maxCPUs = 64
)

func cpuLimitKind() chaos.Kind {
	return chaos.Kind{
		Name: "cpu-limit", Place: 22,
		Doc: "Limits the target and its descendants to `cpus` (0.1: a tenth of a processor) by the quota of their " +
			"control group, until the heal. Receipt: the quota read back, and the kernel's count of throttled " +
			"periods.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanLimitCPU},
		Try:     []string{"cpus: 0.01"},
		Sample:  "{cpus: 0.02..0.2}",
		Lasting: true,
		Slows:   true,
		Began:   "limited to {cpus} processors", Ended: "as fast as before",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := cpuLimit{}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.CPUs < minCPUs || f.CPUs > maxCPUs {
				return nil, fmt.Errorf("cpu-limit needs cpus: %v to %v processors", minCPUs, maxCPUs)
			}
			return f, nil
		},
	}
}

type throttleable interface {
	chaos.Node
	Throttler
}

// cpuKey makes the keys of injections.
var cpuKey atomic.Int64

// Inject limits all targets concurrently, and waits until each was throttled.
func (f cpuLimit) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, CanLimitCPU, func(n throttleable, hits *chaos.Hits[*throttled]) (history.Receipt, error) {
		t := &throttled{throttleable: n, cpus: f.CPUs, key: fmt.Sprintf("cpu-%d", cpuKey.Add(1))}
		return t.inject(ctx, s.Run, hits)
	}, func(ctx context.Context, t *throttled) (history.Receipt, error) { return t.heal(ctx) })
}

// throttled is one target.
type throttled struct {
	throttleable
	cpus   float64
	key    string
	before CPULimited
}

const (
	// throttlePatience bounds the wait for the first period in which the target is throttled: an idle server may never
	// be.
	throttlePatience = 3 * time.Second
	throttleEvery    = 20 * time.Millisecond
)

func (t *throttled) inject(ctx context.Context, run chaos.Run, hits *chaos.Hits[*throttled]) (history.Receipt, error) {
	state, none, err := chaos.Before(ctx, t, "to limit")
	if err != nil || state.Gone() {
		return none, err
	}
	if t.before, err = t.CPULimited(ctx); err != nil {
		return history.Receipt{}, err
	}
	hits.Note(t)
	if err := t.LimitCPU(ctx, t.key, t.cpus); err != nil {
		return history.Receipt{}, err
	}
	first, err := t.CPULimited(ctx)
	if err != nil {
		return history.Receipt{}, err
	}
	evidence := fmt.Sprintf("%s: pid %d, %s; before: %s", t.Name(), state.PID, first.Said, t.before.Said)
	switch {
	case first.CPUs == 0 || first.CPUs > t.cpus*1.001:
		return chaos.Seen(history.NotInstalled, first.Time, evidence), nil
	case first.Outside > 0:
		evidence += fmt.Sprintf(", but %d of its processes are in other groups", first.Outside)
		return chaos.Seen(history.NotInstalled, first.Time, evidence), nil
	}
	if run != nil && run.Stopped() { // a paused target wants no CPU time
		if err := run.Continue(); err != nil {
			return history.Receipt{Evidence: evidence}, err
		}
	}
	now, err := t.wanting(ctx, first)
	if err != nil {
		return history.Receipt{Evidence: evidence}, err
	}
	if now.Throttled == first.Throttled {
		return chaos.Seen(history.Indeterminate, first.Time, fmt.Sprintf("%s; it was not throttled within %v", evidence,
			throttlePatience)), nil
	}
	return chaos.Seen(history.Installed, now.Time, evidence+"; "+now.since(first)), nil
}

// wanting polls until the kernel has throttled the target.
func (t *throttled) wanting(ctx context.Context, first CPULimited) (now CPULimited, err error) {
	defer clock.Waits(ctx, throttlePatience)()
	for deadline := clock.Now() + int64(throttlePatience); ; {
		now, err = t.CPULimited(ctx)
		if err != nil || now.Throttled > first.Throttled || clock.Now() > deadline ||
			clock.Sleep(ctx, throttleEvery) != nil {
			return now, err
		}
	}
}

// heal ends the limit, and checks that the quota from before applies again, or that of another active limit.
func (t *throttled) heal(ctx context.Context) (history.Receipt, error) {
	last, err := t.CPULimited(ctx)
	if failed := t.UnlimitCPU(ctx, t.key); failed != nil {
		return history.Receipt{}, errors.Join(err, failed)
	}
	now, wrong := t.CPULimited(ctx)
	if err = errors.Join(err, wrong); err != nil {
		return history.Receipt{}, err
	}
	evidence := fmt.Sprintf("%s: %s; during the fault: %s", t.Name(), now.Said, last.since(t.before))
	switch {
	case now.Gone:
		return chaos.Seen(history.Installed, now.Time, evidence+": it ended meanwhile"), nil
	case now.CPUs == t.before.CPUs || now.CPUs == 0:
		return chaos.Seen(history.Installed, now.Time, evidence), nil
	case now.Limits > 0:
		return chaos.Seen(history.Installed, now.Time, fmt.Sprintf("%s; %d other limits are active", evidence, now.Limits)), nil
	}
	return chaos.Seen(history.NotInstalled, now.Time, evidence), errors.New("it is still limited")
}
