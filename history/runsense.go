package history

import "slices"

// RunSense is Sense for all processes of a run. It also checks what others record of the clients' grants: effects,
// deaths, the ends of sessions. These events need the grant, but where clocks are not shared they may come before
// it. So they are kept until the grant is known, at the latest to the end.
type RunSense struct {
	processes map[string]*Sense
	clients   map[int]*Sense
	last      *Sense // whose event came last: most come in a row
	claims    []claim
	cut       func(process string) bool
}

// claim is an event of a grant that was not known when the event came.
type claim struct {
	process *Sense
	seq     uint32
	user    User
	grant   uint32
	lock    uint16
	kind    Kind
	phase   Phase
}

func (x claim) event() Event {
	return Event{Seq: x.seq, User: x.user, Grant: x.grant, Lock: x.lock, Kind: x.kind, Phase: x.phase}
}

// maxClaims bounds the claims that are kept. Where clocks are not shared, those of some tens of milliseconds wait
// for their grants.
const maxClaims = 1 << 16

// NewRunSense begins with the first event of the processes' merged histories. cut tells which clients' last events
// may be missing.
func NewRunSense(processes []Header, cut func(process string) bool) *RunSense {
	r := &RunSense{processes: map[string]*Sense{}, clients: map[int]*Sense{}, cut: cut}
	for _, h := range processes {
		s := NewSense(h)
		r.processes[h.Process] = s
		if s.by == byClient {
			r.clients[s.client] = s
		}
	}
	return r
}

// Observe takes the next event of a process. An error is a *Nonsense; nothing may be asked after it.
func (r *RunSense) Observe(process string, e *Event) error {
	s := r.last
	if s == nil || s.process != process {
		s = r.processes[process]
		r.last = s
	}
	if err := s.Observe(e); err != nil {
		return err
	}
	if s.by == byClient || !e.Kind.ofGrant() {
		return nil
	}
	if c := r.clients[e.User.Client()]; c == nil || !c.given.has(e.Grant, ownerOf(e)) {
		r.claims = append(r.claims, claim{s, e.Seq, e.User, e.Grant, e.Lock, e.Kind, e.Phase})
	}
	if len(r.claims) == maxClaims {
		return r.check(maxClaims / 2)
	}
	return nil
}

// check drops the claims whose grant is known by now. Where more than most are left, it refuses the first one.
func (r *RunSense) check(most int) error {
	r.claims = slices.DeleteFunc(r.claims, func(x claim) bool {
		e := x.event()
		c := r.clients[e.User.Client()]
		return c != nil && c.unknown(&e) == ""
	})
	if len(r.claims) > most {
		return r.refuse(r.claims[0])
	}
	return nil
}

// Finish refuses the earliest event of a grant that nobody was given. An error is a *Nonsense.
func (r *RunSense) Finish() error {
	for _, x := range r.claims {
		e := x.event()
		c := r.clients[e.User.Client()]
		if c != nil && (c.unknown(&e) == "" || r.cut(c.process) && c.unheard(&e)) {
			continue
		}
		return r.refuse(x)
	}
	return nil
}

func (r *RunSense) refuse(x claim) error {
	e := x.event()
	if c := r.clients[e.User.Client()]; c != nil {
		return x.process.refuse(&e, "%s", c.unknown(&e))
	}
	return x.process.refuse(&e, "there is no history of the process of its user")
}
