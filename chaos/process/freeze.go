package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// CanFreeze is the capability of a node that is a Freezer.
const CanFreeze chaos.Capability = "freeze"

// Freezer is a node whose process and descendants can be halted by the kernel's cgroup freezer. A node whose freezes
// can overlap counts them and returns the number from a method Freezes.
type Freezer interface {
	chaos.Inspector
	// Freeze halts them, and returns when the agent or the engine reports it. Each call that found a process needs one
	// call of Thaw, even after an error.
	Freeze(ctx context.Context) error
	// Thaw undoes one Freeze.
	Thaw(ctx context.Context) error
	// Frozen asks the kernel, independently of the result of Freeze.
	Frozen(ctx context.Context) (Frozen, error)
}

// freeze halts a process and all its descendants by the freezer of its control group, as a container engine's pause or
// a snapshot of a machine does. It is not a signal: no process inside can catch it, and no parent is notified. The
// kernel still acknowledges what arrives.
//
// Example: a freeze of redis-1 on this machine. The agent moves the server and its children into a new group and writes
// 1 to cgroup.freeze. The kernel then says "frozen 1", and the threads get no processor time in 20 ms: installed.
type freeze struct{}

func freezeKind() chaos.Kind {
	return chaos.Kind{
		Name: "freeze", Place: 3,
		Doc: "Freezes the target and all its descendants by the kernel's freezer (in containers: the engine's pause) " +
			"until the heal. Receipt: the freezer's state according to the kernel, and that none of its threads ran " +
			"meanwhile.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanFreeze},
		Lasting: true,
		Stops:   true,
		Began:   "frozen", Ended: "runs again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := freeze{}
			return f, decode(&f)
		},
	}
}

type freezable interface {
	chaos.Node
	Freezer
}

// Inject freezes all targets concurrently and checks each of them.
func (freeze) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, CanFreeze, func(n freezable, frozenNodes *chaos.Hits[frozen]) (history.Receipt, error) {
		return freezeOne(ctx, n, s.Service, frozenNodes)
	}, func(ctx context.Context, n frozen) (history.Receipt, error) { return n.thawed(ctx) })
}

// frozen is one target. The heal thaws the process that was frozen, not one that replaced it.
type frozen struct {
	freezable
	pid int
}

func freezeOne(ctx context.Context, n freezable, service chaos.Observer,
	frozenNodes *chaos.Hits[frozen],
) (history.Receipt, error) {
	before, none, err := chaos.Before(ctx, n, "to freeze")
	if err != nil || before.Gone() {
		return none, err
	}
	was, err := n.Frozen(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its freezer could not be read: %w", err)
	}
	answers := ""
	if !was.Known() {
		answers = answering(ctx, service, n.Name())
	}
	frozenNodes.Note(frozen{n, before.PID})
	if err := n.Freeze(ctx); err != nil {
		return history.Receipt{}, err
	}
	first, err := n.Frozen(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its freezer could not be read: %w", err)
	}
	evidence := fmt.Sprintf("%s: pid %d, %s", n.Name(), before.PID, first.Said)
	switch {
	case !first.Frozen:
		return chaos.Seen(history.NotInstalled, first.Time, evidence), nil
	case !first.Known():
		status, text := silent(ctx, service, n.Name(), answers)
		return chaos.Seen(status, first.Time, evidence+"; "+text), nil
	case first.Outside > 0:
		return chaos.Seen(history.NotInstalled, first.Time,
			fmt.Sprintf("%s, but %d of its processes are in other groups", evidence, first.Outside)), nil
	}
	text, err := still(ctx, n, first)
	if err != nil {
		return chaos.Seen(history.NotInstalled, first.Time, evidence+", but "+err.Error()),
			nil //nolint:nilerr // it did not bite
	}
	return chaos.Seen(history.Installed, first.Time, evidence+"; "+text), nil
}

const (
	// stillFor is how long a frozen process is watched. It is longer than the tick interval of any server here, so a
	// merely slow server would run in it.
	stillFor = 20 * time.Millisecond
	// stillTries: another fault may be handling it at this moment, which takes a little CPU time.
	stillTries = 3
)

// still checks that none of the threads runs.
func still(ctx context.Context, n Freezer, from Frozen) (string, error) {
	var ran time.Duration
	for range stillTries {
		if err := clock.Sleep(ctx, stillFor); err != nil {
			return "", err
		}
		now, err := n.Frozen(ctx)
		switch {
		case err != nil:
			return "", err
		case !now.Frozen:
			return "", fmt.Errorf("it was not shortly after: %s", now.Said)
		case now.Ran == from.Ran:
			return fmt.Sprintf("its threads did not run for %v",
				time.Duration(now.Time-from.Time).Round(time.Millisecond)), nil
		}
		ran = time.Duration(now.Ran - from.Ran)
		from = now
	}
	return "", fmt.Errorf("its threads ran for %v within %v", ran, stillFor)
}

// thawed thaws a target and checks that it is neither frozen nor stopped, except by another active freeze or pause.
func (n frozen) thawed(ctx context.Context) (history.Receipt, error) {
	if r, ended := endedMeanwhile(ctx, n.freezable, n.pid); ended {
		return r, nil
	}
	begun := clock.Now()
	failed := n.Thaw(ctx)
	now, others, err := around(n.freezes, func() (Frozen, error) { return n.Frozen(ctx) })
	if err = errors.Join(failed, err); err != nil {
		return history.Receipt{Evidence: fmt.Sprintf("%s: %s", n.Name(), now.Said)}, err
	}
	state, paused, err := around(func() int { return pauses(n.freezable) },
		func() (chaos.ProcessState, error) { return n.Inspect(ctx) })
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	evidence := fmt.Sprintf("%s: %s, %s", n.Name(), state, now.Said)
	switch {
	case now.Gone || state.Gone():
		return chaos.Seen(history.Installed, now.Time, evidence+": it ended meanwhile"), nil
	case now.Frozen && others > 0:
		return chaos.Seen(history.Installed, now.Time, fmt.Sprintf("%s: %d other freezes of it are active", evidence,
			others)), nil
	case now.Frozen:
		return chaos.Seen(history.NotInstalled, now.Time, evidence), errors.New("it is still frozen")
	case state.Threads["T"] > 0 && paused == 0:
		return chaos.Seen(history.NotInstalled, state.Time, evidence),
			errors.New("it is stopped, but not by a fault")
	case state.Threads["T"] > 0:
		evidence += fmt.Sprintf(": %d pauses of it are active", paused)
	}
	return chaos.Seen(history.Installed, now.Time, fmt.Sprintf("%s, %v after the request to thaw", evidence,
		time.Duration(now.Time-begun).Round(100*time.Microsecond))), nil
}

// freezes returns the number of active freezes of the node, if it counts them.
func (n frozen) freezes() int {
	if c, ok := chaos.As[interface{ Freezes() int }](n.freezable); ok {
		return c.Freezes()
	}
	return 0
}

// answering returns a fact that the node answers now, or "". If the kernel cannot be asked, the receipt rests on the
// node's later silence.
func answering(ctx context.Context, service chaos.Observer, node string) string {
	if service == nil {
		return ""
	}
	for _, fact := range []string{chaos.FactAnswers, chaos.FactServes, chaos.FactClock} {
		waited := clock.Waits(ctx, chaos.AskTimeout)
		answers := asked(ctx, service, node, fact, chaos.AskTimeout)
		waited()
		if answers {
			return fact
		}
	}
	return ""
}

// silentFor is how long a frozen node that answered before must stay silent.
const silentFor = 300 * time.Millisecond

// silent judges whether a node that answered before is now silent.
func silent(ctx context.Context, service chaos.Observer, node, fact string) (history.ReceiptStatus, string) {
	switch {
	case fact == "":
		return history.Indeterminate, "it did not answer before, so its silence proves nothing"
	case asked(ctx, service, node, fact, silentFor):
		return history.NotInstalled, "but it answers"
	}
	return history.Installed, fmt.Sprintf("it answered before, but not within %v now", silentFor)
}

func asked(ctx context.Context, service chaos.Observer, node, fact string, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := service.Ask(ctx, node, fact)
	return err == nil && answer != "false"
}
