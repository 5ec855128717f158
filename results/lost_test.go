package results

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestGrantsOfALostProcess: grants that by the last event were neither being released nor lost. Four of them are
// named.
func TestGrantsOfALostProcess(t *testing.T) {
	l := Lost{Name: "client-2", Ended: "exit status 137", Open: map[openGrant]uint16{}}
	u := history.MakeUser(1, 0)
	for i := range uint32(9) {
		l.hear(&history.Event{Time: int64(i+1) * 1e6, Kind: history.Acquire, Phase: history.Ok, User: u, Op: i + 1})
	}
	l.hear(&history.Event{Time: 10e6, Kind: history.Release, Phase: history.Invoke, User: u, Op: 20, Grant: 2})
	l.hear(&history.Event{Time: 11e6, Kind: history.Release, Phase: history.Ok, User: u, Op: 21, Grant: 9}) // its invoke was dropped
	l.hear(&history.Event{Time: 11e6, Kind: history.Lost, Phase: history.Info, User: u, Grant: 4})
	l.hear(&history.Event{Time: 12e6, Kind: history.Lost, Phase: history.Info, User: history.MakeUser(1, 1)})
	// None of these opens or closes a grant.
	l.hear(&history.Event{Time: 12e6, Kind: history.Acquire, Phase: history.Invoke, User: u, Op: 30})
	l.hear(&history.Event{Time: 12e6, Kind: history.Acquire, Phase: history.Fail, User: u, Op: 30})
	l.hear(&history.Event{Time: 12e6, Kind: history.Renew, Phase: history.Invoke, User: u, Op: 31, Grant: 1})
	l.hear(&history.Event{Time: 12e6, Kind: history.Renew, Phase: history.Ok, User: u, Op: 31, Grant: 1})
	const want = "client-2 ended without its final message (exit status 137); its actions after its last event, at " +
		"12.000 ms, cannot be judged, nor the grants that it held then: a (grant 1 of client-2/0), a (grant 3 of " +
		"client-2/0), a (grant 5 of client-2/0), a (grant 6 of client-2/0), and 2 more"
	if got := l.reason(Run{Locks: []string{"a"}}); got != want {
		t.Errorf("it is told %q", got)
	}
	r := Lost{Name: "register", Last: 5e6}
	if got := r.reason(Run{}); strings.Contains(got, "may have gone on") || !strings.HasSuffix(got, "at 5.000 ms, cannot be judged") {
		t.Errorf("it is told %q", got)
	}
}
