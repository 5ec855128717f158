package shell

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// CanExec is the capability of a Commander.
const CanExec chaos.Capability = "exec"

// Commander is a node on which commands can be run, with its file system, processes and network.
type Commander interface {
	chaos.Inspector
	// Exec runs a.Run. The agent keeps a.Undo under the key until UndoExec, or until its supervisor is gone.
	Exec(ctx context.Context, key string, a ExecArgs) (Ran, error)
	// UndoExec runs the undo. If the node has been restarted since, it runs in the namespaces of the new process.
	UndoExec(ctx context.Context, key string, a ExecArgs) (Ran, error)
	// Prove runs a.Run and needs no undo.
	Prove(ctx context.Context, a ExecArgs) (Ran, error)
}

// exec runs the user's own commands: one injects a fault, one proves it, and one undoes it.
type exec struct {
	// Run is a command line for /bin/sh on the target that injects the fault.
	Run string `yaml:"run"`
	// Proves is a command that succeeds while the fault is active. Before and after, it fails or prints something else.
	Proves string `yaml:"proves"`
	// Undo is a command that heals the fault.
	Undo string `yaml:"undo"`
	// Within bounds each command, and the wait for the proof; default 4s.
	Within time.Duration `yaml:"within"`
}

// An injection runs three commands one after the other, and must end within chaos.Timeout.
const (
	defaultWithin = 4 * time.Second
	minWithin     = 100 * time.Millisecond
	maxWithin     = 6 * time.Second
)

// Shell means that the node has a shell of its own: Path is in its image, or on this machine.
const Shell node.Preparation = "shell"

// Path is the path of the shell.
const Path = "/bin/sh"

// Preparations asks for the shell before the run: without it nothing could be run, proved or undone.
func (exec) Preparations() []node.Preparation { return []node.Preparation{Shell} }

func execKind() chaos.Kind {
	return chaos.Kind{
		Name: "exec", Place: 21,
		Doc: "Runs a command of yours on the target (`run`, for /bin/sh); the heal runs another (`undo`). Receipt: a " +
			"third command (`proves`) succeeds, and before the fault failed or had other output; with its output and " +
			"exit code.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanExec},
		Lasting: true,
		Shell:   true,
		Try: []string{`run: 'touch "$LOCKQUAKE_DIR/lockquake-exec"', proves: 'test -e "$LOCKQUAKE_DIR/lockquake-exec"', ` +
			`undo: 'rm "$LOCKQUAKE_DIR/lockquake-exec"'`},
		Began: "command run", Ended: "command undone",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := exec{Within: defaultWithin}
			if err := decode(&f); err != nil {
				return nil, err
			}
			return f, f.check()
		},
	}
}

func (f exec) check() error {
	for _, c := range []struct{ key, line, why string }{
		{"run", f.Run, "the command that causes the fault"},
		{"proves", f.Proves, "a command that succeeds only during the fault: without it the receipt is unknown"},
		{"undo", f.Undo, "a command that undoes the fault: the agent runs it even if lockquake is killed"},
	} {
		if c.line == "" {
			return fmt.Errorf("exec needs %s: %s", c.key, c.why)
		}
	}
	if f.Within < minWithin || f.Within > maxWithin {
		return fmt.Errorf("within of exec is %s: want %s to %s", f.Within, minWithin, maxWithin)
	}
	return nil
}

type commandable interface {
	chaos.Node
	Commander
}

// execKey makes the keys of injections.
var execKey atomic.Int64

// Inject runs the command on all targets concurrently, and then the proof on each.
func (f exec) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, CanExec, func(n commandable, hits *chaos.Hits[*executed]) (history.Receipt, error) {
		x := &executed{commandable: n, exec: f, key: fmt.Sprintf("exec-%d", execKey.Add(1))}
		return x.inject(ctx, hits)
	}, func(ctx context.Context, x *executed) (history.Receipt, error) { return x.heal(ctx) })
}

// executed is one target.
type executed struct {
	commandable
	exec
	key    string
	before Ran // the proof, before the command ran
	proof  Ran // the proof while the fault was active
}

// command returns the order for the command, or, with another line, for the proof.
func (x *executed) command(line string) ExecArgs {
	return ExecArgs{Run: line, Undo: x.Undo, Within: x.Within}
}

func (x *executed) inject(ctx context.Context, hits *chaos.Hits[*executed]) (history.Receipt, error) {
	state, none, err := chaos.Before(ctx, x, "to run a command beside")
	if err != nil || state.Gone() {
		return none, err
	}
	if x.before, err = x.proved(ctx); err != nil {
		return history.Receipt{}, err
	}
	hits.Note(x)
	ran, err := x.Exec(ctx, x.key, x.command(x.Run))
	if err != nil {
		return history.Receipt{}, err
	}
	evidence := fmt.Sprintf("%s: run in %v: %s", x.Name(), ran.Took.Round(time.Millisecond), ran)
	if !ran.OK() {
		return chaos.Seen(history.NotInstalled, ran.Time, evidence), nil
	}
	shows := func(r Ran) bool { return r.OK() && !r.Same(x.before) }
	if x.proof, err = x.until(ctx, shows); err != nil {
		return history.Receipt{Evidence: evidence}, err
	}
	evidence += fmt.Sprintf("; proves: %s; before: %s", x.proof, x.before)
	switch {
	case !x.proof.OK():
		return chaos.Seen(history.NotInstalled, x.proof.Time, evidence), nil
	case x.proof.Same(x.before):
		return chaos.Seen(history.Indeterminate, x.proof.Time, evidence+": unchanged, which proves nothing"), nil
	}
	return chaos.Seen(history.Installed, x.proof.Time, evidence), nil
}

// proved runs the proof once. It does not count as an act of the fault.
func (x *executed) proved(ctx context.Context) (Ran, error) {
	defer clock.Waits(ctx, x.Within)()
	return x.Prove(ctx, x.command(x.Proves))
}

// proveEvery is the pause between two proofs.
const proveEvery = 100 * time.Millisecond

// until runs the proof until the result is as wanted or Within is over, and returns the last result.
func (x *executed) until(ctx context.Context, wanted func(Ran) bool) (Ran, error) {
	for deadline := clock.Now() + int64(x.Within); ; {
		ran, err := x.proved(ctx)
		if err != nil || wanted(ran) || clock.Now() > deadline || clock.Sleep(ctx, proveEvery) != nil {
			return ran, err
		}
	}
}

// heal runs the undo, and then the proof, which must now fail or have other output.
func (x *executed) heal(ctx context.Context) (history.Receipt, error) {
	ran, err := x.UndoExec(ctx, x.key, x.command(""))
	if err != nil {
		return history.Receipt{}, err
	}
	if ran.Gone {
		return chaos.Seen(history.Installed, ran.Time, x.Name()+": undo "+ran.String()), nil
	}
	evidence := fmt.Sprintf("%s: undo in %v: %s", x.Name(), ran.Took.Round(time.Millisecond), ran)
	if !ran.OK() {
		return chaos.Seen(history.NotInstalled, ran.Time, evidence), errors.New("the undo did not succeed")
	}
	stands := func(r Ran) bool { return r.OK() && (r.Same(x.proof) || !x.proof.OK()) && !r.Same(x.before) }
	now, err := x.until(ctx, func(r Ran) bool { return !stands(r) })
	if err != nil {
		return history.Receipt{Evidence: evidence}, err
	}
	evidence += fmt.Sprintf("; proves: %s", now)
	if stands(now) {
		return chaos.Seen(history.NotInstalled, now.Time, evidence), errors.New("the fault is still active")
	}
	return chaos.Seen(history.Installed, now.Time, evidence), nil
}
