package watch

import (
	"testing"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
)

// rig feeds a session watch with the test's own times.
type rig struct {
	*Sessions
	user history.User
}

func (r rig) granted(op uint32, at int64) {
	r.Observe([]history.Event{{Time: at, Op: op, User: r.user, Kind: history.Acquire, Phase: history.Ok, Valid: history.ValidEndless}})
}

// leased adds a grant that ends by the clock, whatever becomes of a session.
func (r rig) leased(op uint32, at int64) {
	r.Observe([]history.Event{{Time: at, Op: op, User: r.user, Kind: history.Acquire, Phase: history.Ok, Valid: at + 100}})
}

func (r rig) released(op uint32, at int64) {
	r.Observe([]history.Event{{Time: at, User: r.user, Grant: op, Kind: history.Release, Phase: history.Invoke}})
}

func (r rig) lost(op uint32, at int64) {
	r.Observe([]history.Event{{Time: at, User: r.user, Grant: op, Kind: history.Lost, Phase: history.Info}})
}

// asked adds an answer that lists the named sessions; one after a ? is not certainly alive.
func (r rig) asked(at int64, ids ...string) {
	var list []topology.Session
	for _, id := range ids {
		stands := id[0] != '?'
		if !stands {
			id = id[1:]
		}
		list = append(list, topology.Session{User: r.user, ID: id, Stands: stands})
	}
	r.take(list, at, at+1)
}

func TestSessionWatch(t *testing.T) {
	for name, c := range map[string]struct {
		play func(r rig)
		want map[uint32]int64 // grant -> when its entitlement ended
	}{
		"a session that stands to the end": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.released(1, 15)
			r.asked(20, "a")
		}, nil},
		"a session that ended while its holder was inside": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.asked(20)
			r.released(1, 30)
		}, map[uint32]int64{1: 10}},
		"a short hold between the last sight of its session and the news": {func(r rig) {
			r.asked(10, "a")
			r.granted(1, 12)
			r.released(1, 14)
			r.asked(20)
		}, map[uint32]int64{1: 12}},
		"news that come before the grant does": {func(r rig) {
			r.asked(10, "a")
			r.asked(20)
			r.granted(1, 12)
			r.released(1, 14)
		}, map[uint32]int64{1: 12}},
		"a hold that hangs on no session": {func(r rig) {
			r.leased(1, 5)
			r.asked(10, "a")
			r.asked(20)
			r.released(1, 30)
		}, nil},
		"a session that may have gone while the answer was on its way": {func(r rig) {
			r.asked(10, "a")
			r.asked(20)
			r.granted(1, 21)
			r.asked(40, "b")
		}, map[uint32]int64{1: 21}},
		"a hold that was over before": {func(r rig) {
			r.granted(1, 5)
			r.released(1, 8)
			r.asked(10, "a")
			r.asked(20)
		}, nil},
		"a session that stands to the very end of a hold": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.released(1, 10)
			r.asked(20)
		}, nil},
		"a session that ended after its user was told of the loss": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.lost(1, 12)
			r.asked(20, "a")
			r.asked(30)
		}, nil},
		"a gap in the answers is covered by the next": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.released(1, 80)
			r.asked(100, "a")
		}, nil},
		"a session that may be ending proves nothing": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.asked(20, "?a")
			r.released(1, 30)
			r.asked(40)
		}, map[uint32]int64{1: 10}},
		"no answers after the server was gone": {func(r rig) {
			r.asked(10, "a")
			r.granted(1, 12)
		}, map[uint32]int64{1: 12}},
		"no answers at all": {func(r rig) {
			r.granted(1, 5)
			r.released(1, 6)
		}, map[uint32]int64{1: 5}},
		"a second session takes over": {func(r rig) {
			r.granted(1, 5)
			r.asked(10, "a")
			r.asked(20, "b")
			r.granted(2, 30)
			r.released(1, 31)
			r.released(2, 35)
			r.asked(40, "b")
		}, map[uint32]int64{1: 10}},
		"a grant that may belong to the session that ended": {func(r rig) {
			r.asked(10, "a")
			r.granted(2, 15)
			r.asked(20, "b")
			r.asked(40, "b")
		}, map[uint32]int64{2: 15}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig{NewSessions(nil, nil), history.MakeUser(1, 2)}
			c.play(r)
			ends := r.Ends()
			if len(ends) != len(c.want) {
				t.Fatalf("ends %+v, want %v", ends, c.want)
			}
			for _, e := range ends {
				if at := c.want[e.Grant]; e.Time != at || e.Valid != at || e.User != r.user || e.Kind != history.Ended {
					t.Errorf("end %+v, want at %d", e, at)
				}
			}
		})
	}
}

func TestSessionWatchForgetsEndedSessions(t *testing.T) {
	r := rig{NewSessions(nil, nil), history.MakeUser(0, 0)}
	for i := range uint32(100) {
		at := int64(i) * 10
		r.granted(i+1, at)
		r.released(i+1, at+1)
		r.asked(at+2, "a")
	}
	if n := len(r.users[r.user].holds); n != 0 {
		t.Fatalf("%d holds are kept, though their session stood after each", n)
	}
}
