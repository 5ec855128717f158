package history

import (
	"fmt"
	"slices"
)

// userPage is how many users share a part of the table of users.
const userPage = 16

// maxOpen bounds the operations of one user that are under way. A user has one, and renewals beside it.
const maxOpen = 1000

// userSense is what one user has under way.
type userSense struct {
	open []operation
	held []heldGrant       // up to fewGrants of them
	more map[uint16]uint32 // the others: grant by lock
	// entries are the re-entries that were not given back: as often as the user took a grant once more
	entries []heldGrant
}

// operation is an invoke.
type operation struct {
	time  int64
	op    uint32
	grant uint32
	lock  uint16
	kind  Kind
	mode  uint8
}

// heldGrant is a grant that a user has.
type heldGrant struct {
	grant uint32
	lock  uint16
}

// fewGrants is how many grants of one user are kept in a list; more are kept in a map.
const fewGrants = 16

// user returns what a user of the process has begun.
func (s *Sense) user(u User) *userSense {
	i, at := u.Index()/userPage, u.Index()%userPage
	if i >= len(s.users) {
		s.users = append(s.users, make([]*[userPage]userSense, i+1-len(s.users))...)
	}
	if s.users[i] == nil {
		s.users[i] = &[userPage]userSense{}
	}
	return &s.users[i][at]
}

// end takes out the operation with that op: most often the latest.
func (u *userSense) end(op uint32) (o operation, ok bool) {
	for i, x := range slices.Backward(u.open) {
		if x.op == op {
			u.open = append(u.open[:i], u.open[i+1:]...)
			return x, true
		}
	}
	return o, false
}

// depth takes the invoke of what goes by the number of re-entries, and says why it cannot be. A hold ends with its last
// release, so one that comes before would end it early, and hide who is let in meanwhile.
func (u *userSense) depth(e *Event) string {
	i := slices.Index(u.entries, heldGrant{e.Grant, e.Lock})
	switch {
	case e.Kind == Reenter && len(u.entries) == maxOpen:
		return fmt.Sprintf("its user has %d open re-entries", maxOpen)
	case e.Kind == Leave && i < 0:
		return "its user has no re-entry of that grant"
	case e.Kind == Release && i >= 0:
		return "its user has a re-entry of that grant and must leave it first"
	case e.Kind == Leave:
		u.entries = slices.Delete(u.entries, i, i+1)
	}
	return ""
}

// has returns the grant that the user has of a lock, or 0.
func (u *userSense) has(lock uint16) uint32 {
	for _, h := range u.held {
		if h.lock == lock {
			return h.grant
		}
	}
	return u.more[lock]
}

// take adds a grant to those that the user has. It replaces an older grant of the same lock.
func (u *userSense) take(lock uint16, grant uint32) {
	u.drop(lock, u.has(lock))
	u.entries = slices.DeleteFunc(u.entries, func(h heldGrant) bool { return h.lock == lock })
	if len(u.held) < fewGrants {
		u.held = append(u.held, heldGrant{grant, lock})
		return
	}
	if u.more == nil {
		u.more = map[uint16]uint32{}
	}
	u.more[lock] = grant
}

// drop ends the hold by a grant of a lock, where it is the one that the user has.
func (u *userSense) drop(lock uint16, grant uint32) {
	if i := slices.Index(u.held, heldGrant{grant, lock}); i >= 0 {
		u.held = append(u.held[:i], u.held[i+1:]...)
	} else if len(u.more) > 0 && u.more[lock] == grant {
		delete(u.more, lock)
	}
}

// owner is a user of a process, by its number, and a lock.
type owner struct{ user, lock uint16 }

func ownerOf(e *Event) owner { return owner{uint16(e.User.Index()), e.Lock} }

// page is how many ops share a part of the table of grants.
const page = 1 << 10

// grants is a table of the acquires of one process that were granted. It has four bytes for each event of the process.
type grants struct{ pages []*grantPage }

type grantPage struct {
	owners [page]owner
	given  [page / 64]uint64 // a bit for each
}

func (g *grants) add(op uint32, own owner) {
	i, at := int(op/page), op%page
	for i >= len(g.pages) {
		g.pages = append(g.pages, nil)
	}
	if g.pages[i] == nil {
		g.pages[i] = &grantPage{}
	}
	g.pages[i].owners[at] = own
	g.pages[i].given[at/64] |= 1 << (at % 64)
}

func (g *grants) has(op uint32, own owner) bool {
	i, at := int(op/page), op%page
	if i >= len(g.pages) || g.pages[i] == nil {
		return false
	}
	p := g.pages[i]
	return p.given[at/64]&(1<<(at%64)) != 0 && p.owners[at] == own
}
