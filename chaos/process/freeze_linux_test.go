package process

import (
	"context"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// icy is a stopped process in the place of a frozen one. It counts its freezes like the nodes of a run.
type icy struct {
	*realProcess
	n       int
	deaf    bool // Freeze does nothing and returns no error
	liar    bool // the kernel is said to have frozen it
	unknown bool // the kernel cannot be asked
	looks   int64
}

func (i *icy) Freezes() int { return i.n }

func (i *icy) Freeze(ctx context.Context) error {
	if i.n++; i.n > 1 || i.deaf {
		return nil
	}
	_, err := i.Pause(ctx)
	return err
}

func (i *icy) Thaw(ctx context.Context) error {
	if i.n--; i.n > 0 || i.deaf {
		return nil
	}
	_, err := i.Resume(ctx)
	return err
}

func (i *icy) Frozen(ctx context.Context) (Frozen, error) {
	s, err := i.Inspect(ctx)
	halted := s.Stopped()
	out := Frozen{Frozen: halted || i.liar && i.n > 0, Said: "state", Gone: s.Gone(), Time: clock.Now()}
	if i.unknown {
		out.Unseen = "nobody may ask"
	}
	if !halted {
		i.looks++ // it runs
		out.Ran = i.looks
	}
	return out, err
}

// Ask does not use the network: an answer over it may come later than a freeze waits for it.
func (i *icy) Ask(ctx context.Context, _, _ string) (string, error) {
	if s, err := i.Inspect(ctx); err != nil || s.Stopped() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "true", nil
}

func injectFreeze(t *testing.T, n chaos.Node, service chaos.Observer) (chaos.Heal, history.Receipt) {
	t.Helper()
	heal, r, err := newFault(t, "freeze", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}, Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return heal, r
}

func TestFreezeAndThaw(t *testing.T) {
	a := &icy{realProcess: newProcess(t, "a")}
	heal, r := injectFreeze(t, a, a)
	faulttest.WantStatus(t, "freeze", r, history.Installed)
	if !strings.Contains(r.Evidence, "did not run for") {
		t.Errorf("evidence %q", r.Evidence)
	}
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if !answers(t, a.realProcess) {
		t.Error("a healed process does not answer")
	}
}

func TestFreezeThatDidNotBite(t *testing.T) {
	for name, c := range map[string]struct {
		node *icy
		want history.ReceiptStatus
	}{
		"nothing was done":                        {&icy{deaf: true}, history.NotInstalled},
		"the kernel says so, and it runs":         {&icy{deaf: true, liar: true}, history.NotInstalled},
		"the engine says so, and it answers":      {&icy{deaf: true, liar: true, unknown: true}, history.NotInstalled},
		"the engine says so, and it falls silent": {&icy{unknown: true}, history.Installed},
	} {
		t.Run(name, func(t *testing.T) {
			c.node.realProcess = newProcess(t, "a")
			heal, r := injectFreeze(t, c.node, c.node)
			faulttest.WantStatus(t, "freeze", r, c.want)
			if _, err := heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !answers(t, c.node.realProcess) {
				t.Error("it does not answer after the heal")
			}
		})
	}
}

func TestSilenceOfWhatNeverAnsweredProvesNothing(t *testing.T) {
	a := &icy{realProcess: newProcess(t, "a"), unknown: true}
	heal, r := injectFreeze(t, a, nil)
	faulttest.WantStatus(t, "freeze", r, history.Indeterminate)
	if _, err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOverlappingFreezesHealIndependently(t *testing.T) {
	a := &icy{realProcess: newProcess(t, "a")}
	var heals []chaos.Heal
	for range 2 {
		heal, r := injectFreeze(t, a, a)
		faulttest.WantStatus(t, "freeze", r, history.Installed)
		heals = append(heals, heal)
	}
	healIndependently(t, a.realProcess, heals, "1 other freezes")
}

func TestFailedThawIsReported(t *testing.T) {
	a := &icy{realProcess: newProcess(t, "a")}
	heal, r := injectFreeze(t, a, a)
	faulttest.WantStatus(t, "freeze", r, history.Installed)
	a.deaf = true
	if r, err := heal(t.Context()); err == nil || r.Status != history.NotInstalled {
		t.Errorf("heal: %+v, %v", r, err)
	}
}

func TestTheFreezeOfAProcessThatDies(t *testing.T) {
	a := &icy{realProcess: newProcess(t, "a")}
	heal, _ := injectFreeze(t, a, a)
	if _, err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-a.exited
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if _, r := injectFreeze(t, a, a); r.Status != history.NotInstalled {
		t.Errorf("the freeze of a dead process: %+v", r)
	}
}
