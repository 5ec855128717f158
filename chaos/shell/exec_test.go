package shell

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

const keys = "{run: break, proves: look, undo: mend, within: 100ms}"

// machine is a node on which "break" injects a fault, "mend" heals it, and "look" succeeds while it is active.
type machine struct {
	faulttest.Node
	gone, broken     bool
	code             int    // of break
	deaf, deafToUndo bool   // nothing happens, and all is well
	says             string // output of look, always; "": no output, and it fails without the fault
	changes          bool   // its output differs while the fault is active
	unable           error
	undone           int
}

func (m *machine) Inspect(context.Context) (chaos.ProcessState, error) {
	if m.gone {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	return chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 1}, Time: clock.Now()}, nil
}

func (m *machine) Exec(_ context.Context, _ string, a ExecArgs) (Ran, error) {
	if a.Run != "break" || a.Undo != "mend" {
		return Ran{}, errors.New("this was not asked for")
	}
	m.broken = m.code == 0 && !m.deaf
	return Ran{Code: m.code, Output: "cannot\n", Time: clock.Now()}, m.unable
}

func (m *machine) UndoExec(context.Context, string, ExecArgs) (Ran, error) {
	m.undone++
	m.broken = m.broken && m.deafToUndo
	return Ran{Gone: m.gone, Time: clock.Now()}, nil
}

func (m *machine) Prove(_ context.Context, a ExecArgs) (Ran, error) {
	r := Ran{Output: m.says, Time: clock.Now()}
	if m.broken && m.changes {
		r.Output += " now"
	}
	if a.Run != "look" || m.says == "" && !m.broken {
		r.Code = 1
	}
	return r, nil
}

func TestExecIsProvedAndUndone(t *testing.T) {
	for _, m := range []*machine{{}, {says: "100", changes: true}} {
		m.Node = "redis-1"
		heal := faulttest.Injected(t, "exec", faulttest.New(t, Kinds(), "exec", keys), chaos.Scope{On: []chaos.Node{m}})
		if !m.broken {
			t.Error("the command was not run")
		}
		r := faulttest.Healed(t, "its heal", heal)
		if m.broken || m.undone != 1 || !strings.Contains(r.Evidence, "redis-1: undo in") {
			t.Errorf("undone %d times: %s", m.undone, r.Evidence)
		}
	}
}

// TestExecThatDidNotBite: an unproved command does not count, and every command is undone.
func TestExecThatDidNotBite(t *testing.T) {
	for name, c := range map[string]struct {
		machine
		want history.ReceiptStatus
		says string
	}{
		"nothing was done":           {machine{deaf: true}, history.NotInstalled, "proves: exit code 1"},
		"the command failed":         {machine{code: 3}, history.NotInstalled, `run in 0s: exit code 3, said "cannot"`},
		"the proof succeeded before": {machine{says: "yes"}, history.Indeterminate, "which proves nothing"},
	} {
		c.Node = "redis-1"
		heal, r, err := faulttest.New(t, Kinds(), "exec", keys).Inject(t.Context(), chaos.Scope{On: []chaos.Node{&c.machine}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		faulttest.WantStatus(t, name, r, c.want)
		if !strings.Contains(r.Evidence, c.says) {
			t.Errorf("%s: %q does not say %q", name, r.Evidence, c.says)
		}
		faulttest.Healed(t, "heal where "+name, heal)
		if c.undone != 1 {
			t.Errorf("%s: undone %d times", name, c.undone)
		}
	}
}

func TestExecThatIsNotUndone(t *testing.T) {
	m := &machine{Node: "redis-1", deafToUndo: true}
	heal := faulttest.Injected(t, "exec", faulttest.New(t, Kinds(), "exec", keys), chaos.Scope{On: []chaos.Node{m}})
	r, err := heal(t.Context())
	if err == nil {
		t.Error("what still stands is no error")
	}
	faulttest.WantStatus(t, "its heal", r, history.NotInstalled)
}

func TestExecOnAnEndedNode(t *testing.T) {
	m := &machine{Node: "redis-1", gone: true}
	f := faulttest.New(t, Kinds(), "exec", keys)
	heal, r, err := f.Inject(t.Context(), chaos.Scope{On: []chaos.Node{m}})
	if err != nil || m.undone != 0 {
		t.Errorf("undone %d times, %v", m.undone, err)
	}
	faulttest.WantStatus(t, "exec", r, history.NotInstalled)
	faulttest.Healed(t, "its heal", heal)

	m.gone, m.unable = false, errors.New("no agent")
	heal, r, err = f.Inject(t.Context(), chaos.Scope{On: []chaos.Node{m}})
	if !errors.Is(err, m.unable) {
		t.Error(err)
	}
	faulttest.WantStatus(t, "exec", r, history.NotInstalled)
	m.gone = true
	faulttest.Healed(t, "the heal of a node that ended meanwhile", heal)
}

func TestExecIsRefused(t *testing.T) {
	for params, want := range map[string]string{
		"proves: look, undo: mend":                              "exec needs run",
		"run: break, undo: mend":                                "exec needs proves",
		"run: break, proves: look":                              "exec needs undo",
		"run: break, proves: look, undo: mend, within: 1m":      "within of exec",
		"run: break, proves: look, undo: mend, unto: elsewhere": "unto",
	} {
		_, err := faulttest.Kind(t, Kinds(), "exec").New(faulttest.Decoding("{" + params + "}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
}
