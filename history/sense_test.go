package history

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
)

// tale is a history under construction: events of several processes in order of time.
type tale struct {
	events  []Event
	process []string
	seq     map[string]uint32
}

// tell adds an event of a process, and sets the fields common to all events.
func (t *tale) tell(process string, e Event) uint32 {
	if t.seq == nil {
		t.seq = map[string]uint32{}
	}
	t.seq[process]++
	e.Seq, e.Time = t.seq[process], int64(1000+10*len(t.events))
	if e.Op == 0 {
		e.Op = e.Seq
	}
	t.events, t.process = append(t.events, e), append(t.process, process)
	return e.Seq
}

// sane returns the tale of two users of client-1, one of client-2, a register and the engine, with everything that is
// possible, once.
func sane() *tale {
	t := &tale{}
	for i, u := range []User{MakeUser(0, 0), MakeUser(0, 1), MakeUser(1, 0)} {
		me := []string{"client-1", "client-1", "client-2"}[i]
		both := func(e Event, end Phase) {
			e.User, e.Phase = u, Invoke
			e.Op = t.tell(me, e)
			e.Phase = end
			t.tell(me, e)
		}
		both(Event{Kind: Acquire}, Fail)
		t.tell(me, Event{Kind: Reason, Phase: Info, User: u, Op: t.seq[me] - 1, Code: CauseWaitOver, Value: 5})
		op := t.tell(me, Event{Kind: Acquire, Phase: Invoke, User: u})
		t.tell(me, Event{Kind: Acquire, Phase: Ok, User: u, Op: op, Grant: op, Valid: 9000, Value: int64(1000 + 10*(len(t.events)-1))})
		t.tell("register", Event{Kind: EffectRead, Phase: Ok, User: u, Grant: op})
		both(Event{Kind: Read, Grant: op}, Ok)
		both(Event{Kind: Check, Grant: op}, Ok)
		both(Event{Kind: Renew, Grant: op, Valid: 9500}, Ok)
		t.tell(me, Event{Kind: Renewed, Phase: Info, User: u, Grant: op, Valid: 9600})
		second := t.tell(me, Event{Kind: Acquire, Phase: Invoke, User: u, Lock: 1})
		t.tell(me, Event{Kind: Acquire, Phase: Ok, User: u, Op: second, Grant: second, Lock: 1, Valid: ValidEndless, Value: int64(1000 + 10*(len(t.events)-1))})
		t.tell(me, Event{Kind: Lost, Phase: Info, User: u, Grant: op})
		both(Event{Kind: Write, Grant: op}, Info) // it goes on despite the cancel
		refused := t.tell("register", Event{Kind: EffectWrite, Phase: Fail, User: u, Grant: op, Code: CodeFenced})
		t.tell("register", Event{Kind: Reason, Phase: Info, User: u, Op: refused, Grant: op, Code: CauseTokenLower, Token: 7})
		t.tell(me, Event{Kind: Stall, Phase: Info, User: u, Value: 5})
		both(Event{Kind: Release, Grant: op}, Ok)
		if i == 0 {
			both(Event{Kind: Release, Grant: second, Lock: 1}, Fail)
		}
		t.tell(Engine, Event{Kind: Ended, Phase: Info, User: u, Grant: second, Lock: 1})
		t.tell(Engine, Event{Kind: Dead, Phase: Info, User: u, Grant: second, Lock: 1})
	}
	t.tell(Engine, Event{Kind: Final, Phase: Info})
	t.tell("register", Event{Kind: Final, Phase: Info})
	return t
}

func header(process string) Header {
	return Header{Process: process, Locks: []string{"lock-0", "lock-1"}}
}

// hear passes the tale to a RunSense; cut are the processes whose end may be missing.
func (t *tale) hear(cut ...string) error {
	r := NewRunSense([]Header{header("client-1"), header("client-2"), header("register"), header(Engine)}, func(p string) bool { return slices.Contains(cut, p) })
	for i := range t.events {
		if err := r.Observe(t.process[i], &t.events[i]); err != nil {
			return err
		}
	}
	return r.Finish()
}

// find returns the first event of that kind and phase of the process.
func (t *tale) find(process string, k Kind, p Phase) *Event {
	for i := range t.events {
		if e := &t.events[i]; t.process[i] == process && e.Kind == k && e.Phase == p {
			return e
		}
	}
	return nil
}

func TestSenseOfWhatCanHappen(t *testing.T) {
	if err := sane().hear(); err != nil {
		t.Fatal(err)
	}
	late := sane() // if clocks are not shared, an effect may be merged before the grant
	i := slices.Index(late.process, "register")
	e := late.events[i]
	late.events, late.process = slices.Delete(late.events, i, i+1), slices.Delete(late.process, i, i+1)
	late.events, late.process = slices.Insert(late.events, 0, e), slices.Insert(late.process, 0, "register")
	if err := late.hear(); err != nil {
		t.Error(err)
	}
}

// wrong is a change of one event, and the error for it. Without a process the event is client-1's.
type wrong struct {
	process string
	kind    Kind
	phase   Phase
	change  func(*Event)
	want    string
}

func TestNonsenseIsRefused(t *testing.T) {
	for name, w := range map[string]wrong{
		"user of another client":       {"", Read, Invoke, func(e *Event) { e.User = MakeUser(1, 0) }, "not one of client-1"},
		"stall of another client":      {"", Stall, Info, func(e *Event) { e.User = MakeUser(1, 0) }, "not one of client-1"},
		"seq left out":                 {"", Acquire, Ok, func(e *Event) { e.Seq = 0 }, "its seq is 0"},
		"seq skipped":                  {"", Acquire, Ok, func(e *Event) { e.Seq++ }, "its seq is 6"},
		"time goes back":               {"", Acquire, Ok, func(e *Event) { e.Time = 3 }, "its time is 3"},
		"time beyond all":              {"", Acquire, Ok, func(e *Event) { e.Time = maxTime + 1 }, "no time of CLOCK_MONOTONIC"},
		"time before all":              {"", Acquire, Invoke, func(e *Event) { e.Time = -1 }, "no time of CLOCK_MONOTONIC"},
		"no phase":                     {"", Acquire, Ok, func(e *Event) { e.Phase = PhaseNone }, "no such phase"},
		"news with an outcome":         {"", Renewed, Info, func(e *Event) { e.Phase = Ok }, "no such phase"},
		"effect of unknown outcome":    {"register", EffectRead, Ok, func(e *Event) { e.Phase = Info }, "no such phase"},
		"unknown kind":                 {"", Stall, Info, func(e *Event) { e.Kind = kindEnd }, "does not report that"},
		"client tells of an effect":    {"", Read, Ok, func(e *Event) { e.Kind = EffectRead }, "a client does not report"},
		"client tells of a death":      {"", Lost, Info, func(e *Event) { e.Kind = Dead }, "a client does not report"},
		"client tells of the end":      {"", Stall, Info, func(e *Event) { e.Kind = Clean }, "a client does not report"},
		"resource tells of a release":  {"register", EffectRead, Ok, func(e *Event) { e.Kind = Release }, "a resource does not report"},
		"engine tells of an effect":    {Engine, Ended, Info, func(e *Event) { e.Kind = EffectRead }, "the engine does not report"},
		"lock that is none":            {"", Acquire, Ok, func(e *Event) { e.Lock = 2 }, "the run has 2 locks"},
		"mode that is none":            {"", Acquire, Ok, func(e *Event) { e.Mode = 2 }, "its mode is 2"},
		"news of an earlier op":        {"", Renewed, Info, func(e *Event) { e.Op = 1 }, "its op is 1: want its own seq"},
		"invoke of an earlier op":      {"", Read, Invoke, func(e *Event) { e.Op = 1 }, "its op is 1: want its own seq"},
		"reason for nothing":           {"", Reason, Info, func(e *Event) { e.Op = e.Seq }, "want the op of an event before"},
		"reason without an op":         {"", Reason, Info, func(e *Event) { e.Op = 0 }, "want the op of an event before"},
		"reason without a cause":       {"", Reason, Info, func(e *Event) { e.Code = CodeFenced }, "a reason must have a cause"},
		"cause of an outcome":          {"", Acquire, Fail, func(e *Event) { e.Code = CauseWaitOver }, "a reason must have a cause"},
		"nothing dropped":              {"", Stall, Info, func(e *Event) { e.Kind, e.Value = Dropped, 0 }, "its value is 0"},
		"ok without its invoke":        {"", Acquire, Ok, func(e *Event) { e.Op, e.Grant = 5, 5 }, "its op is 5, but its user has no open"},
		"ok of an op to come":          {"", Acquire, Ok, func(e *Event) { e.Op, e.Grant = 1<<31, 1<<31 }, "but its user has no open"},
		"fail without its invoke":      {"", Acquire, Fail, func(e *Event) { e.Op = 2 }, "but its user has no open"},
		"second outcome":               {"", Acquire, Ok, func(e *Event) { e.Op, e.Grant = 1, 1 }, "but its user has no open"},
		"outcome of another kind":      {"", Read, Ok, func(e *Event) { e.Kind = Write }, "which is the read of lock 0"},
		"outcome for another user":     {"", Read, Ok, func(e *Event) { e.User++ }, "but its user has no open"},
		"outcome of another lock":      {"", Read, Ok, func(e *Event) { e.Lock = 1 }, "which is the read of lock 0"},
		"outcome of another grant":     {"", Release, Ok, func(e *Event) { e.Grant++ }, "that of its invoke is"},
		"acquire ok without grant":     {"", Acquire, Ok, func(e *Event) { e.Grant = 0 }, "its grant is 0: want its op"},
		"acquire ok without valid":     {"", Acquire, Ok, func(e *Event) { e.Valid = 0 }, "its valid is 0 or missing"},
		"valid before all":             {"", Acquire, Ok, func(e *Event) { e.Valid = -7 }, "its valid is -7"},
		"valid beyond all":             {"", Acquire, Ok, func(e *Event) { e.Valid = ValidEndless - 1 }, "or missing"},
		"renew ok without valid":       {"", Renew, Ok, func(e *Event) { e.Valid = 0 }, "its valid is 0 or missing"},
		"renewed without valid":        {"", Renewed, Info, func(e *Event) { e.Valid = 0 }, "its valid is 0 or missing"},
		"acquire ok without issued":    {"", Acquire, Ok, func(e *Event) { e.Value = 0 }, "its value is 0: want the send time"},
		"issued before it was asked":   {"", Acquire, Ok, func(e *Event) { e.Value = 1010 }, "its value is 1010: want the send time"},
		"issued after it was answered": {"", Acquire, Ok, func(e *Event) { e.Value = e.Time + 1 }, "want the send time"},
		"release without grant":        {"", Release, Invoke, func(e *Event) { e.Grant = 0 }, "it has no grant"},
		"release of nobody's grant":    {"", Release, Invoke, func(e *Event) { e.Grant = 1 }, "no acquire with that op"},
		"release of a grant to come":   {"", Release, Invoke, func(e *Event) { e.Grant = 1 << 31 }, "no acquire with that op"},
		"release of another's grant":   {"", Release, Invoke, func(e *Event) { e.User++ }, "no acquire with that op"},
		"release of another lock":      {"", Release, Invoke, func(e *Event) { e.Lock = 1 }, "no acquire with that op"},
		"renewal of nobody's grant":    {"", Renew, Invoke, func(e *Event) { e.Grant = 1 }, "no acquire with that op"},
		"release-unheld by a holder":   {"", Read, Invoke, func(e *Event) { e.Kind, e.Grant = ReleaseUnheld, 0 }, "has that lock in hand, by grant"},
		"renewed without grant":        {"", Renewed, Info, func(e *Event) { e.Grant = 0 }, "it has no grant"},
		"lost without grant":           {"", Lost, Info, func(e *Event) { e.Grant = 0 }, "it has no grant"},
		"read without grant":           {"", Read, Invoke, func(e *Event) { e.Grant = 0 }, "it has no grant"},
		"write of nobody's grant":      {"", Write, Invoke, func(e *Event) { e.Grant = 2 }, "no acquire with that op"},
		"check of nobody's grant":      {"", Check, Invoke, func(e *Event) { e.Grant = 2 }, "no acquire with that op"},
		"effect without grant":         {"register", EffectRead, Ok, func(e *Event) { e.Grant = 0 }, "it has no grant"},
		"effect of nobody's grant":     {"register", EffectRead, Ok, func(e *Event) { e.Grant = 1 }, "no acquire with that op"},
		"effect of a grant to come":    {"register", EffectWrite, Fail, func(e *Event) { e.Grant = 1 << 31 }, "no acquire with that op"},
		"effect of another user":       {"register", EffectRead, Ok, func(e *Event) { e.User++ }, "no acquire with that op"},
		"effect under another lock":    {"register", EffectRead, Ok, func(e *Event) { e.Lock = 1 }, "no acquire with that op"},
		"effect of nobody":             {"register", EffectRead, Ok, func(e *Event) { e.User = MakeUser(7, 0) }, "no history of the process of its user"},
		"death of nobody's grant":      {Engine, Dead, Info, func(e *Event) { e.Grant = 1 }, "no acquire with that op"},
		"end of nobody's grant":        {Engine, Ended, Info, func(e *Event) { e.Grant = 1 }, "no acquire with that op"},
	} {
		t.Run(name, func(t *testing.T) {
			if w.process == "" {
				w.process = "client-1"
			}
			x := sane()
			e := x.find(w.process, w.kind, w.phase)
			seq := e.Seq
			w.change(e)
			var n *Nonsense
			if err := x.hear(); !errors.As(err, &n) || n.Process != w.process || n.Seq != seq && n.Seq != e.Seq || !strings.Contains(err.Error(), w.want) {
				t.Errorf("event %d of %s: %v, want %q", seq, w.process, err, w.want)
			}
		})
	}
}

// TestSenseAtItsBorders changes single events to the limits of what is possible.
func TestSenseAtItsBorders(t *testing.T) {
	for name, w := range map[string]wrong{
		"time of the boot":           {"", Acquire, Invoke, func(e *Event) { e.Time = 0 }, ""},
		"last time":                  {"register", Final, Info, func(e *Event) { e.Time = maxTime }, ""},
		"issued as it was asked":     {"", Acquire, Ok, func(e *Event) { e.Value = e.Time - 10 }, ""},
		"issued as it was answered":  {"", Acquire, Ok, func(e *Event) { e.Value = e.Time }, ""},
		"answered as it was asked":   {"", Acquire, Ok, func(e *Event) { e.Time, e.Value = e.Time-10, e.Time-10 }, ""},
		"valid until the last time":  {"", Acquire, Ok, func(e *Event) { e.Valid = maxTime }, ""},
		"valid from the first on":    {"", Acquire, Ok, func(e *Event) { e.Valid = 1 }, ""},
		"last error class":           {"", Acquire, Fail, func(e *Event) { e.Code = CodeOther }, ""},
		"first cause":                {"register", Reason, Info, func(e *Event) { e.Code = codeClasses }, ""},
		"last cause":                 {"register", Reason, Info, func(e *Event) { e.Code = codeEnd - 1 }, ""},
		"reason for the first event": {"", Reason, Info, func(e *Event) { e.Op = 1 }, ""},
	} {
		x := sane()
		w.process = cmp.Or(w.process, "client-1")
		w.change(x.find(w.process, w.kind, w.phase))
		if err := x.hear(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestModes: an outcome has the mode of its invoke. A run that does not ask for shared mode has no event in it. If a
// client could claim "shared" by itself, all of its grants would become compatible.
func TestModes(t *testing.T) {
	u := MakeUser(0, 0)
	for name, c := range map[string]struct {
		exclusive     bool
		asked, served uint8
		phase         Phase
		want          string
	}{
		"shared":                         {false, 1, 1, Ok, ""},
		"shared, where nobody asks":      {true, 1, 1, Ok, "event 1 (acquire invoke of client-1/0) is inconsistent: its mode is shared, but nothing in the run requests that"},
		"granted shared":                 {false, 0, 1, Ok, "event 2 (acquire ok of client-1/0) is inconsistent: its mode is shared, but its invoke requested exclusive"},
		"granted shared, where none is":  {true, 0, 1, Ok, "event 2 (acquire ok of client-1/0) is inconsistent: its mode is shared, but nothing in the run requests that"},
		"granted exclusive":              {false, 1, 0, Ok, "event 2 (acquire ok of client-1/0) is inconsistent: its mode is exclusive, but its invoke requested shared"},
		"refused, and told as exclusive": {false, 1, 0, Fail, "its mode is exclusive, but its invoke requested shared"},
	} {
		x := &tale{}
		op := x.tell("client-1", Event{Kind: Acquire, Phase: Invoke, User: u, Mode: c.asked})
		e := Event{Kind: Acquire, Phase: c.phase, User: u, Op: op, Mode: c.served}
		if c.phase == Ok {
			e.Grant, e.Valid, e.Value = op, ValidEndless, 1000
		}
		x.tell("client-1", e)
		h := header("client-1")
		h.Exclusive = c.exclusive
		s := NewSense(h)
		err := s.Observe(&x.events[0])
		if err == nil {
			err = s.Observe(&x.events[1])
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestLease: no grant and no renewal is valid for longer than the lease after the answer was received.
func TestLease(t *testing.T) {
	const lease = 500
	for name, c := range map[string]struct {
		lease int64
		kind  Kind
		valid int64 // after the event's time
		want  string
	}{
		"at its end":                  {lease, Acquire, lease, ""},
		"beyond it":                   {lease, Acquire, lease + 1, "is inconsistent: its valid is 501ns after it: grants of the run end at most 500ns after"},
		"a renewal beyond it":         {lease, Renew, lease + 1, "its valid is 501ns after it"},
		"beyond it, told by the lock": {lease, Renewed, lease + 1, "its valid is 501ns after it"},
		"no lease is known":           {0, Acquire, 1e12, ""},
		"over before it came":         {lease, Acquire, -5, ""},
	} {
		x := sane()
		h := header("client-1")
		h.LeaseNS = c.lease
		s := NewSense(h)
		var err error
		changed := false
		for i := range x.events {
			e := &x.events[i]
			if x.process[i] != "client-1" {
				continue
			}
			if e.Kind == c.kind && (e.Phase == Ok || e.Phase == Info) && !changed {
				e.Valid, changed = e.Time+c.valid, true
			} else if e.Valid > 0 && (e.Kind == Acquire || e.Kind == Renew || e.Kind == Renewed) {
				e.Valid = e.Time + 1
			}
			if err = s.Observe(e); err != nil {
				break
			}
		}
		if !changed || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestEventsThatNeedALock: a stall needs none, and may not name one that does not exist.
func TestEventsThatNeedALock(t *testing.T) {
	for _, c := range []struct {
		locks int
		event Event
		want  string
	}{
		{0, Event{Kind: Stall, Phase: Info}, ""},
		{0, Event{Kind: Acquire, Phase: Invoke}, "its lock has number 0, and the run has 0 locks"},
		{2, Event{Kind: Stall, Phase: Info, Lock: 2}, "its lock has number 2, and the run has 2 locks"},
	} {
		x := &tale{}
		x.tell("client-1", c.event)
		err := NewSense(Header{Process: "client-1", Locks: make([]string, c.locks)}).Observe(&x.events[0])
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v of lock %d in a run with %d: %v, want %q", c.event.Kind, c.event.Lock, c.locks, err, c.want)
		}
	}
}

func TestASecondHoldOfOneUserIsRefused(t *testing.T) {
	u := MakeUser(0, 0)
	for name, c := range map[string]struct {
		between []Event
		want    string
	}{
		"at once":                {nil, "has that lock in hand, by grant 1"},
		"another's release":      {[]Event{{Kind: Stall, Phase: Info}}, "in hand"},
		"released":               {[]Event{{Kind: Release, Phase: Invoke, Grant: 1}}, ""},
		"told of the loss":       {[]Event{{Kind: Lost, Phase: Info, Grant: 1}}, ""},
		"events were dropped":    {[]Event{{Kind: Dropped, Phase: Info, Value: 1}}, ""},
		"renewed, which is none": {[]Event{{Kind: Renewed, Phase: Info, Grant: 1, Valid: 5}}, "in hand"},
	} {
		t.Run(name, func(t *testing.T) {
			x := &tale{}
			take := func() {
				op := x.tell("client-1", Event{Kind: Acquire, Phase: Invoke, User: u})
				at := int64(1000 + 10*(len(x.events)-1))
				x.tell("client-1", Event{Kind: Acquire, Phase: Ok, User: u, Op: op, Grant: op, Valid: ValidUnknown, Value: at})
			}
			take()
			for _, e := range c.between {
				e.User = u
				x.tell("client-1", e)
			}
			take()
			if err := x.hear(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// without removes the first such event of client-1; later ones move up.
func (t *tale) without(k Kind, p Phase) {
	gone := t.find("client-1", k, p)
	seq, i := gone.Seq, 0
	for ; &t.events[i] != gone; i++ {
	}
	t.events, t.process = slices.Delete(t.events, i, i+1), slices.Delete(t.process, i, i+1)
	up := func(n *uint32) {
		if *n > seq {
			*n--
		}
	}
	for i := range t.events {
		e := &t.events[i]
		if t.process[i] == "client-1" {
			up(&e.Seq)
			up(&e.Op)
		}
		if e.User.Client() == 0 {
			up(&e.Grant)
		}
	}
}

// TestDroppedEventsExcuse: an event without its beginning passes after a Dropped event, and only then.
func TestDroppedEventsExcuse(t *testing.T) {
	for _, e := range []Event{{Kind: Acquire, Phase: Ok}, {Kind: Read, Phase: Invoke}, {Kind: Release, Phase: Invoke}} {
		x := sane()
		x.without(e.Kind, e.Phase)
		if err := x.hear(); err == nil {
			t.Errorf("%v %v is missing, and nobody minds", e.Kind, e.Phase)
		}
		x = sane()
		told := x.find("client-1", e.Kind, e.Phase)
		*told = Event{Time: told.Time, Seq: told.Seq, Op: told.Seq, User: told.User, Kind: Dropped, Phase: Info, Value: 1}
		if err := x.hear(); err != nil {
			t.Errorf("%v %v was dropped: %v", e.Kind, e.Phase, err)
		}
		x.find("client-1", Dropped, Info).User = MakeUser(1, 0)
		if err := x.hear(); err == nil {
			t.Error("an event dropped excuses a foreign user")
		}
	}
}

// TestAKilledClientsLastWordsExcuse: effects pass whose grants were on their way when their client was killed.
func TestAKilledClientsLastWordsExcuse(t *testing.T) {
	u := MakeUser(0, 3)
	for name, c := range map[string]struct {
		grant  uint32
		excuse bool
	}{"asked for": {0, true}, "not told of": {99, true}, "another's": {1, false}} {
		x := sane()
		asked := x.tell("client-1", Event{Kind: Acquire, Phase: Invoke, User: u})
		if c.grant == 0 {
			c.grant = asked
		}
		x.tell("register", Event{Kind: EffectWrite, Phase: Ok, User: u, Grant: c.grant})
		if err := x.hear(); err == nil {
			t.Errorf("%s: an effect of a client that lives passes", name)
		}
		if err := x.hear("client-1"); (err == nil) != c.excuse {
			t.Errorf("%s: of a client that was killed: %v", name, err)
		}
	}
}

func TestClientOf(t *testing.T) {
	for name, want := range map[string]int{
		"client-1": 0, "client-65536": 65535, "client-65537": -1, "client-0": -1, "client-01": -1, "client-": -1, "client--1": -1,
		"client-1x": -1, "register": -1, "": -1, "client-99999999999999999999": -1,
	} {
		if got, ok := ClientOf(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d %v, want %d", name, got, ok, want)
		}
	}
}

// TestSenseOfManyGrants crosses the pages of the table.
func TestSenseOfManyGrants(t *testing.T) {
	s := NewSense(header("client-1"))
	seq := uint32(0)
	next := func(e Event) error {
		seq++
		e.Seq, e.Time, e.User = seq, int64(seq), MakeUser(0, 65535)
		if e.Op == 0 {
			e.Op = seq
		}
		return s.Observe(&e)
	}
	for range 3 * page {
		op := seq + 1
		err := errors.Join(next(Event{Kind: Acquire, Phase: Invoke, Lock: 1}),
			next(Event{Kind: Acquire, Phase: Ok, Lock: 1, Op: op, Grant: op, Value: int64(op), Valid: ValidEndless}),
			next(Event{Kind: Release, Phase: Invoke, Lock: 1, Grant: op}), next(Event{Kind: Release, Phase: Ok, Lock: 1, Op: op + 2, Grant: op}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if u := s.user(MakeUser(0, 65535)); len(u.open)+len(u.held)+len(u.more) != 0 {
		t.Errorf("operations and holds are open: %+v", *u)
	}
	if err := next(Event{Kind: Read, Phase: Invoke, Lock: 1, Grant: 1}); err != nil {
		t.Errorf("the first grant is forgotten: %v", err)
	}
}

// TestSenseOfManyHoldsAndOperations: a user has far more of both than usual.
func TestSenseOfManyHoldsAndOperations(t *testing.T) {
	const n = 10 * fewGrants
	x := &tale{}
	all := Header{Process: "client-1", Locks: make([]string, n)}
	var grants []uint32
	take := func(lock int) {
		op := x.tell("client-1", Event{Kind: Acquire, Phase: Invoke, Lock: uint16(lock)})
		at := int64(1000 + 10*(len(x.events)-1))
		grants = append(grants, x.tell("client-1", Event{Kind: Acquire, Phase: Ok, Op: op, Grant: op, Lock: uint16(lock), Valid: ValidEndless, Value: at})-1)
	}
	give := func(lock int) {
		x.tell("client-1", Event{Kind: Lost, Phase: Info, Lock: uint16(lock), Grant: grants[lock], Valid: 1})
	}
	hear := func() (err error) {
		s := NewSense(all)
		for i := range x.events {
			if err == nil {
				err = s.Observe(&x.events[i])
			}
		}
		return err
	}
	for i := range n {
		take(i)
	}
	for i := range n {
		give((i * 7) % n)
	}
	for i := range n {
		take(i)
	}
	if err := hear(); err != nil {
		t.Fatal(err)
	}
	good := len(x.events)
	for _, lock := range []int{0, n - 1} {
		take(lock)
		if err := hear(); err == nil || !strings.Contains(err.Error(), "in hand") {
			t.Errorf("a second hold of lock %d: %v", lock, err)
		}
		x.events, x.seq["client-1"] = x.events[:good], uint32(good)
	}
	for range maxOpen {
		x.tell("client-1", Event{Kind: Read, Phase: Invoke, Grant: grants[n]})
	}
	if err := hear(); err != nil {
		t.Fatal(err)
	}
	x.tell("client-1", Event{Kind: Read, Phase: Invoke, Grant: grants[n]})
	if err := hear(); err == nil || !strings.Contains(err.Error(), "have no outcome") {
		t.Errorf("one operation too many: %v", err)
	}
}

// TestDropsExcuseNoNumber: a grant's number must be that of an earlier event, even if its invoke was
// dropped.
func TestDropsExcuseNoNumber(t *testing.T) {
	for op, want := range map[uint32]string{2: "an event before", 3: "an event before", 1 << 31: "an event before", 1: ""} {
		x := &tale{}
		x.tell("client-1", Event{Kind: Dropped, Phase: Info, Value: 1})
		x.tell("client-1", Event{Kind: Acquire, Phase: Ok, Op: op, Grant: op, Valid: ValidEndless, Value: 1})
		if err := x.hear(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("op %d: %v, want %q", op, err, want)
		}
	}
}

// TestWhenAGrantsRequestWasSent: at 0 only if it was answered at 0, also if its invoke was dropped.
func TestWhenAGrantsRequestWasSent(t *testing.T) {
	for first, want := range map[Event]string{{Kind: Dropped, Phase: Info, Value: 1}: "its value is 0: want the send time", {Kind: Acquire, Phase: Invoke}: ""} {
		x := &tale{}
		x.tell("client-1", first)
		x.tell("client-1", Event{Kind: Acquire, Phase: Ok, Op: 1, Grant: 1, Valid: ValidEndless})
		if want == "" {
			x.events[0].Time, x.events[1].Time = 0, 0
		}
		if err := x.hear(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("behind %v %v: %v, want %q", first.Kind, first.Phase, err, want)
		}
	}
}

// TestEffectsDoNotWaitWithoutEnd: more effects than may wait for their grants, of a grant that never comes and of one
// that does.
func TestEffectsDoNotWaitWithoutEnd(t *testing.T) {
	run := func(grant uint32, cut bool) (n int, err error) {
		r := NewRunSense([]Header{header("client-1"), header("register")}, func(string) bool { return cut })
		tell := func(e Event) {
			if err == nil {
				e.Time = 9
				err = r.Observe(map[bool]string{true: "client-1", false: "register"}[e.Kind == Acquire], &e)
			}
		}
		tell(Event{Kind: Acquire, Phase: Invoke, Seq: 1, Op: 1})
		for err == nil && n < 3*maxClaims {
			n++
			tell(Event{Kind: EffectRead, Phase: Ok, Seq: uint32(n), Op: uint32(n), Grant: grant})
			if n == maxClaims/4 {
				tell(Event{Kind: Acquire, Phase: Ok, Seq: 2, Op: 1, Grant: 1, Valid: ValidEndless, Value: 9})
			}
		}
		return n, err
	}
	if n, err := run(1, false); err != nil || n != 3*maxClaims {
		t.Errorf("%d effects of a grant that comes late: %v", n, err)
	}
	for _, cut := range []bool{false, true} {
		var wrong *Nonsense
		if n, err := run(7, cut); !errors.As(err, &wrong) || n > maxClaims || wrong.Seq != 1 {
			t.Errorf("%d effects of nobody's grant, their client cut short %t: %v", n, cut, err)
		}
	}
}

// TestReentriesAreGivenBack: a release before all re-entries are left would end a hold early.
func TestReentriesAreGivenBack(t *testing.T) {
	u := MakeUser(0, 0)
	const release, take, leave = Release, Reenter, Leave
	for name, c := range map[string]struct {
		acts  []Kind
		plain bool // nothing in the run asks for a re-entry
		want  string
	}{
		"taken and given back":  {[]Kind{take, take, leave, leave, release}, false, ""},
		"released too early":    {[]Kind{take, take, leave, release}, false, "its user has a re-entry of that grant and must leave it first"},
		"left once too often":   {[]Kind{take, leave, leave}, false, "its user has no re-entry of that grant"},
		"left, but never taken": {[]Kind{leave}, false, "no re-entry of that grant"},
		"nobody asks for it":    {[]Kind{take}, true, "nothing in the run requests a re-entry"},
		"events were dropped":   {[]Kind{Dropped, leave, release}, false, ""},
		"told of the loss":      {[]Kind{take, Lost, leave, release}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := &tale{}
			both := func(k Kind, grant uint32) uint32 {
				op := x.tell("client-1", Event{Kind: k, Phase: Invoke, User: u, Grant: grant})
				e := Event{Kind: k, Phase: Ok, User: u, Op: op, Grant: grant, Valid: ValidUnknown}
				if k == Acquire {
					e.Grant, e.Value = op, int64(1000+10*len(x.events))
				}
				x.tell("client-1", e)
				return op
			}
			grant := both(Acquire, 0)
			for _, k := range c.acts {
				switch k {
				case Dropped, Lost:
					x.tell("client-1", Event{Kind: k, Phase: Info, User: u, Grant: grant, Value: 1})
				default:
					both(k, grant)
				}
			}
			h := header("client-1")
			h.Reentrant = !c.plain
			s := NewSense(h)
			var err error
			for i := range x.events {
				if err == nil {
					err = s.Observe(&x.events[i])
				}
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
