package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// ledger is a service that keeps a history.
type ledger struct {
	chaos.Observer
	keeps         bool // all the same
	refuses, dumb error
}

func (l *ledger) Compact(context.Context, string) (int64, error) { return 7, l.refuses }

func (l *ledger) Forgotten(_ context.Context, _ string, revision int64) (string, error) {
	if l.keeps || revision >= 7 {
		return "", l.dumb
	}
	return "compacted", l.dumb
}

func TestCompact(t *testing.T) {
	broken := errors.New("refused to connect")
	for name, c := range map[string]struct {
		ledger
		want history.ReceiptStatus
		says string
	}{
		"it is done":            {ledger{}, history.Installed, "a: compacted to revision 7; an earlier revision: compacted"},
		"it keeps all the same": {ledger{keeps: true}, history.NotInstalled, "can still be read"},
		"it does not say":       {ledger{dumb: broken}, history.Indeterminate, "refused to connect"},
		"it refuses":            {ledger{refuses: broken}, history.NotInstalled, "compact a: refused to connect"},
	} {
		scope := chaos.Scope{Service: wrapper{&c.ledger}, On: []chaos.Node{faulttest.Node("a")}}
		heal, r, err := compact{}.Inject(t.Context(), scope)
		if !errors.Is(err, c.refuses) {
			t.Errorf("%s: %v", name, err)
		}
		faulttest.WantStatus(t, name, r, c.want)
		if !strings.Contains(r.Evidence, c.says) {
			t.Errorf("%s: %q does not say %q", name, r.Evidence, c.says)
		}
		faulttest.Healed(t, name, heal)
	}
	none := chaos.Scope{Service: wrapper{&archive{}}, On: []chaos.Node{faulttest.Node("a")}}
	if _, r, err := (compact{}).Inject(t.Context(), none); err == nil || r.Status == history.Installed {
		t.Errorf("of a service without a history: %v, %v", r, err)
	}
}
