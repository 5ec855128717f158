package service

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// archive is a service whose servers can be made to refuse writes.
type archive struct {
	chaos.Observer
	refuses, down    bool
	deaf, deafToHeal bool
	unable           error
}

var errFull = errors.New("NOSPACE")

func (a *archive) Ask(_ context.Context, _, fact string) (string, error) {
	switch {
	case a.down:
		return "", errors.New("refused to connect")
	case fact == chaos.FactWrites && a.refuses:
		return "", errFull
	}
	return "true", nil
}

func (a *archive) RefuseWrites(context.Context, string) (string, func(context.Context) error, error) {
	a.refuses = a.refuses || !a.deaf
	return "full", func(context.Context) error { a.refuses = a.refuses && a.deafToHeal; return nil }, a.unable
}

func (a *archive) scope() chaos.Scope {
	return chaos.Scope{Service: wrapper{a}, On: []chaos.Node{faulttest.Node("a")}}
}

var brief = refuseWrites{patience: 50 * time.Millisecond}

func TestRefuseWrites(t *testing.T) {
	a := &archive{}
	heal, r, err := brief.Inject(t.Context(), a.scope())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "refuse-writes", r, history.Installed)
	if r.Evidence != "a: full; a write: NOSPACE" {
		t.Error(r.Evidence)
	}
	if r = faulttest.Healed(t, "its heal", heal); a.refuses || r.Evidence != "a: a write: taken: true" {
		t.Error(r.Evidence)
	}
}

func TestRefuseWritesThatDidNotBite(t *testing.T) {
	for name, c := range map[string]struct {
		archive
		says string
	}{
		"nothing was done":          {archive{deaf: true}, "a: full; a write: taken: true"},
		"it took none before":       {archive{refuses: true}, "a accepted no write before: NOSPACE"},
		"the setting was not taken": {archive{deaf: true, unable: errFull}, "a: full: NOSPACE"},
	} {
		heal, r, err := brief.Inject(t.Context(), c.scope())
		if !errors.Is(err, c.unable) {
			t.Errorf("%s: %v", name, err)
		}
		faulttest.WantStatus(t, name, r, history.NotInstalled)
		if !strings.Contains(r.Evidence, c.says) {
			t.Errorf("%s: %q does not say %q", name, r.Evidence, c.says)
		}
		faulttest.Healed(t, "heal where "+name, heal)
	}
}

func TestRefuseWritesThatIsNotHealed(t *testing.T) {
	a := &archive{deafToHeal: true}
	heal, _, err := brief.Inject(t.Context(), a.scope())
	if err != nil {
		t.Fatal(err)
	}
	r, err := heal(t.Context())
	if err == nil {
		t.Error("a server that still refuses is no error")
	}
	faulttest.WantStatus(t, "its heal", r, history.NotInstalled)
	a.down = true
	r, err = heal(t.Context())
	if err != nil {
		t.Error(err)
	}
	faulttest.WantStatus(t, "the heal of a server that is down", r, history.Indeterminate)
}

func TestRefuseWritesWantsAService(t *testing.T) {
	if err := brief.Wants(newRealm()); !errors.As(err, new(chaos.Unavailable)) {
		t.Error(err)
	}
	if err := brief.Wants(wrapper{&archive{}}); err != nil {
		t.Error(err)
	}
}
