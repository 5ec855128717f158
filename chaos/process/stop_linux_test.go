package process

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

func TestStopAndRestartInOrder(t *testing.T) {
	for fault, params := range map[string]string{"stop": "", "restart": "how: stop"} {
		k := newKeeper(t)
		old := k.cmd.Process.Pid
		heal, r, err := newFault(t, fault, params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{k}, Service: k})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, fault, r, history.Installed)
		for _, says := range []string{"ended by itself: signal: terminated", "held 2 entries of 5 bytes before"} {
			if !strings.Contains(r.Evidence, says) {
				t.Errorf("%s: %q does not say %q", fault, r.Evidence, says)
			}
		}
		if runs := fault == "restart"; k.Running() != runs {
			t.Errorf("%s: running %t", fault, k.Running())
		}
		r, err = heal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, "heal of "+fault, r, history.Installed)
		if k.cmd.Process.Pid == old || !answers(t, k.realProcess) {
			t.Errorf("%s: it was not started again", fault)
		}
	}
}

func TestStopsThatWereNone(t *testing.T) {
	for _, s := range []struct {
		what string
		node func(*realProcess) chaos.Node
		want history.ReceiptStatus
		says string
	}{
		{"nothing was sent", func(p *realProcess) chaos.Node { return deafToStop{p} }, history.NotInstalled, "has not ended within 10s"},
		{"it was killed", func(p *realProcess) chaos.Node { return killed{p} }, history.NotInstalled, "ended by a SIGKILL (signal: killed)"},
		{"nobody saw how", func(p *realProcess) chaos.Node { return unseen{p} }, history.Indeterminate, "its exit status is unknown"},
	} {
		for fault, params := range map[string]string{"stop": "", "restart": "how: stop"} {
			p := newProcess(t, "a")
			heal, r, err := newFault(t, fault, params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{s.node(p)}, Service: p})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, fault+", "+s.what, r, s.want)
			if !strings.Contains(r.Evidence, s.says) {
				t.Errorf("%s, %s: %q does not say %q", fault, s.what, r.Evidence, s.says)
			}
			if _, err := heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !answers(t, p) {
				t.Errorf("%s, %s: it does not answer after the heal", fault, s.what)
			}
		}
	}
}

// TestAStopThatMayComeLater asks a stopped process to end, which it would do once resumed.
func TestAStopThatMayComeLater(t *testing.T) {
	p := newProcess(t, "a")
	if _, err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := p.cmd.Process.Pid
	heal, r, err := newFault(t, "stop", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{hurried{p}}, Service: p})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "a stop of a paused process", r, history.NotInstalled)
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "its heal", r, history.Installed)
	if p.cmd.Process.Pid == old || !answers(t, p) {
		t.Error("the process that was asked to end is still there")
	}
}

func TestStopRefuses(t *testing.T) {
	p := newProcess(t, "client-1")
	p.once = true
	for fault, params := range map[string]string{"stop": "", "restart": "how: stop"} {
		for what, n := range map[string]chaos.Node{"a node without process": faulttest.Node("x"), "a client": p} {
			_, r, err := newFault(t, fault, params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}})
			if err == nil || !p.Running() {
				t.Errorf("%s of %s: %v, running %t", fault, what, err, p.Running())
			}
			faulttest.WantStatus(t, fault+" of "+what, r, history.NotInstalled)
		}
	}
	if _, err := restartKind().New(func(into any) error { into.(*restart).How = "softly"; return nil }); err == nil {
		t.Error("a restart done softly was taken")
	}
}
