package suite

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// The defaults of a suite.
const (
	usualTTL     = 2 * time.Second // etcd as it is set up here keeps no shorter lease
	usualClients = 3
	usualUsers   = 4
	quickUsers   = 2
)

// ErrNoLock says that a row names an unknown lock. ErrNoStory says that a name begins with Folder but matches no
// story.
var (
	ErrNoLock  = errors.New("no such lock")
	ErrNoStory = errors.New("no such story")
)

// Ask asks the programs that replace lockquake's own client in a scenario for their hellos. Without such programs
// there are no answers.
type Ask func(scenarios.Scenario) ([]*wire.Hello, error)

// once returns an Ask that asks the programs of several rows only once.
func (ask Ask) once() Ask {
	said := map[string]func() ([]*wire.Hello, error){}
	return func(s scenarios.Scenario) ([]*wire.Hello, error) {
		key := fmt.Sprintf("%+v", s.Programs())
		if said[key] == nil {
			said[key] = sync.OnceValues(func() ([]*wire.Hello, error) { return ask(s) })
		}
		return said[key]()
	}
}

// Plan makes the cells: each lock with each story, those of one topology together. The cells of a lock whose clients
// cannot be asked are not run.
func Plan(c Config, known []listed.Backend, ask Ask) ([]Cell, error) {
	ask = ask.once()
	if len(c.Stories) == 0 && c.Random == nil {
		c.Stories = []string{"default"}
	}
	var out []Cell
	for _, row := range c.Locks {
		rows, err := expand(row, known)
		if err != nil {
			return nil, c.locate("locks", err)
		}
		for _, r := range rows {
			cells, err := c.cells(r, ask)
			if err != nil {
				return nil, err
			}
			out = append(out, cells...)
		}
	}
	seen := map[string]bool{}
	for _, cell := range out {
		key := cell.Lock + "\x00" + cell.Story
		if seen[key] {
			return nil, c.locate("locks",
				fmt.Errorf("%s has the story %s twice; give one of the rows its own name", cell.Lock, cell.Story))
		}
		seen[key] = true
	}
	var topologies []string // in the order of their first cells
	for _, cell := range out {
		if !slices.Contains(topologies, cell.topology) {
			topologies = append(topologies, cell.topology)
		}
	}
	slices.SortStableFunc(out, func(a, b Cell) int {
		return slices.Index(topologies, a.topology) - slices.Index(topologies, b.topology)
	})
	return out, nil
}

// locate makes an error one about a key of the file, if there is a file.
func (c Config) locate(key string, err error) error {
	if c.dir == "" {
		return err
	}
	return c.errorf(key, "%v", err)
}

// known is a row whose lock was found.
type known struct {
	Row
	backend listed.Backend
	lock    backends.Lock
}

// Locks returns the locks that BACKEND, BACKEND/LOCK or "BACKEND/*" name: the default one, one, or all.
func Locks(backend, lock string, list []backends.Backend) (b backends.Backend, locks []backends.Lock, err error) {
	i := slices.IndexFunc(list, func(b backends.Backend) bool { return b.Name == backend })
	if i < 0 {
		var names []string
		for _, b := range list {
			names = append(names, b.Name)
		}
		return b, nil, fmt.Errorf("%w: there is no backend %q; there are %s", ErrNoLock, backend,
			strings.Join(names, ", "))
	}
	if b = list[i]; lock == "*" {
		return b, b.Locks, nil
	}
	l, ok := b.Lock(lock)
	if !ok {
		var names []string
		for _, l := range b.Locks {
			names = append(names, l.Name)
		}
		return b, nil, fmt.Errorf("%w: %s has no lock %q; it has %s", ErrNoLock, b.Name, lock,
			strings.Join(names, ", "))
	}
	return b, []backends.Lock{l}, nil
}

// expand returns the locks that a row names.
func expand(row Row, list []listed.Backend) ([]known, error) {
	b, locks, err := Locks(row.Backend, row.Lock, listed.Clients(list))
	i := slices.IndexFunc(list, func(x listed.Backend) bool { return x.Name == b.Name })
	var out []known
	for _, l := range locks {
		row.Lock = l.Name
		out = append(out, known{row, list[i], l})
	}
	return out, err
}

// cells makes the cells of one lock.
func (c Config) cells(r known, ask Ask) ([]Cell, error) {
	set, err := r.sets(c.dir)
	if err != nil {
		return nil, err
	}
	m := maker{row: r, set: set, base: Cell{Lock: r.Name, topology: r.Backend + " " + strings.Join(set, " ")}}
	if err := m.meet(c, ask); err != nil {
		return nil, c.locate("locks", err)
	}
	if m.base.Lock == "" {
		m.base.Lock = r.Backend + "/" + r.Lock
		if r.Client != nil {
			m.base.Lock += " by " + r.Client.String()
		}
	}
	words := c.Stories
	if len(r.Stories) > 0 {
		words = r.Stories
	}
	for _, word := range words {
		if err := m.word(c, word); err != nil {
			return nil, err
		}
	}
	if c.Random != nil {
		for _, seed := range c.Random.Seeds {
			t := stories.Random(seed, stories.Draw{
				Faults: c.Random.Faults, On: c.Random.On, For: c.Random.For,
				Expect: c.Random.Expect,
			})
			if err := m.template(t, fmt.Sprintf("random-%d", seed)); err != nil {
				return nil, err
			}
		}
	}
	return m.cells, nil
}

// subject returns the lock as stories see it with lockquake's own clients.
func (c Config) subject(r known) stories.Subject {
	users := usualUsers
	if c.Quick {
		users = quickUsers
	}
	return stories.Subject{
		Backend: r.Backend, Servers: r.backend.Servers, Lock: r.lock, TTL: max(cmp.Or(c.TTL, usualTTL), r.lock.MinTTL),
		Clients: cmp.Or(c.Clients, usualClients), Users: cmp.Or(c.Users, users),
		InProcess: r.backend.InProcess, Quick: c.Quick,
	}
}

// maker makes the cells of one lock.
type maker struct {
	row     known
	subject stories.Subject
	set     []string
	base    Cell
	cells   []Cell
}

// meet finds out what the lock can do in this row: the backend's keys may declare what it offers, and an external
// program announces what it supports.
func (m *maker) meet(c Config, ask Ask) error {
	m.subject = c.subject(m.row)
	lone, err := m.sample()
	if err != nil {
		return err
	}
	t, err := m.row.backend.New(topology.Common{Nodes: lone.Backend.Nodes, TTL: lone.Backend.TTL, Lock: m.row.Lock},
		lone.Backend.Params.Decode)
	if err != nil {
		return err
	}
	m.row.lock = listed.Declared(m.row.lock, t)
	m.subject = c.subject(m.row) // its TTL may be longer now
	if m.base.Foreign = len(lone.Programs()) > 0; !m.base.Foreign {
		return nil
	}
	if lone, err = m.sample(); err != nil {
		return err
	}
	if m.base.Hellos, err = ask(lone); err != nil {
		m.base.NotRun, m.base.Missing = err.Error(), true
	}
	m.subject.Lock = announced(m.subject.Lock, m.base.Hellos)
	m.subject.Keeps = slices.ContainsFunc(m.base.Hellos, func(h *wire.Hello) bool { return h.Keeps || h.Hung != nil })
	m.subject.Elsewhere = slices.ContainsFunc(m.base.Hellos, func(h *wire.Hello) bool { return h.Elsewhere })
	return nil
}

// sample returns a scenario of the lock, with those keys of the row that describe the lock.
func (m *maker) sample() (scenarios.Scenario, error) {
	text := fmt.Sprintf("name: suite\nclaim: The features of the lock.\nbackend: {use: %s, lock: %s, ttl: %v}\nworkload: {use: acquire-release, clients: %d}\n",
		m.subject.Backend, m.subject.Lock.Name, m.subject.TTL, m.subject.Clients)
	s, err := scenarios.Parse([]byte(text), "suite.yaml")
	if err != nil {
		return s, err
	}
	return s.With(slices.DeleteFunc(slices.Clone(m.set), func(key string) bool {
		return !strings.HasPrefix(key, "backend.") && !strings.HasPrefix(key, "workload.client")
	}))
}

// announced returns the lock as external programs support it. They take turns, so no story may need what one of them
// lacks.
func announced(l backends.Lock, hellos []*wire.Hello) backends.Lock {
	lacks := func(has func(*wire.Hello) bool) bool {
		return slices.ContainsFunc(hellos, func(h *wire.Hello) bool { return !has(h) })
	}
	if !lacks(func(h *wire.Hello) bool { return h.Process == wire.ProcessClient }) && len(hellos) > 0 {
		return l
	}
	l.Points = nil
	if len(hellos) > 0 {
		l.Points = slices.DeleteFunc(slices.Clone(hellos[0].Points), func(point string) bool {
			return lacks(func(h *wire.Hello) bool { return slices.Contains(h.Points, point) })
		})
	}
	l.Offers.LossSignal = !lacks(func(h *wire.Hello) bool { return h.Tells })
	l.Offers.Reenters = len(hellos) > 0 && !lacks(func(h *wire.Hello) bool { return h.Takes(wire.DoReenter) })
	l.Offers.Permits = len(hellos) > 0 && !lacks(func(h *wire.Hello) bool { return h.Permits })
	if len(hellos) > 0 && !lacks(func(h *wire.Hello) bool { return h.Hung != nil }) {
		l.Hung = backends.RecoversIn(func(ttl time.Duration) (bound time.Duration) {
			for _, h := range hellos {
				bound = max(bound, h.Hung.Of(ttl))
			}
			return bound
		})
	}
	switch renews := !lacks(func(h *wire.Hello) bool { return h.Takes(wire.DoRenew) }); {
	case renews:
		l.Offers.Renewal = "call"
	case l.Offers.Renewal == "call":
		l.Offers.Renewal = "none"
	}
	return l
}

// Folder is the prefix for stories of the default suite in lists that can name other scenarios too.
const Folder = "suite/"

// word adds the stories that one word of the list names.
func (m *maker) word(c Config, word string) error {
	found, own := false, false
	if !strings.HasSuffix(word, ".yaml") {
		word, own = strings.CutPrefix(word, Folder)
	}
	for _, t := range stories.Of(m.subject) {
		match, err := path.Match(word, t.Name)
		if err != nil {
			return c.locate("stories", fmt.Errorf("%q is not a pattern", word))
		}
		if word == "default" || word == "quick" && t.Quick || match || word == t.Family {
			found = true
			if err := m.template(t, t.Name); err != nil {
				return err
			}
		}
	}
	if found || ofSomeLock(word) {
		return nil
	}
	if own {
		return c.locate("stories", fmt.Errorf("%w: %s; those of the default suite are %s", ErrNoStory, Folder+word,
			strings.Join(stories.Names(), ", ")))
	}
	name := word
	if strings.HasSuffix(word, ".yaml") && !path.IsAbs(word) && c.dir != "" {
		name = path.Join(c.dir, word)
	}
	list, err := scenarios.Load(name)
	var wrong *scenarios.Error
	if errors.As(err, &wrong) && wrong.Line == 0 {
		return c.locate("stories", fmt.Errorf("%w; the stories of the default suite are %s", err,
			strings.Join(stories.Names(), ", ")))
	}
	if err != nil {
		return err
	}
	for _, s := range list {
		if err := m.scenario(s); err != nil {
			return err
		}
	}
	return nil
}

// ofSomeLock reports whether a word names stories that other locks have: those about a point.
func ofSomeLock(word string) bool {
	return slices.ContainsFunc(stories.Names(), func(name string) bool {
		family, point := strings.CutSuffix(name, "POINT")
		match, _ := path.Match(word, name) // checked before to be a pattern
		return match || point && strings.HasPrefix(word, family)
	})
}

// add adds a cell, unless the lock has it already.
func (m *maker) add(cell Cell) {
	if !slices.ContainsFunc(m.cells, func(o Cell) bool { return o.Story == cell.Story }) {
		m.cells = append(m.cells, cell)
	}
}

// template adds a story of the default suite, or a drawn one. If one of the suite cannot be read, it is not run; the
// others are.
func (m *maker) template(t stories.Story, name string) error {
	cell := m.base
	cell.Story, cell.Claim, cell.Estimate, cell.About, cell.Apart = name, t.Claim, t.Estimate(m.subject).Milliseconds(),
		t.Grants, t.Why(m.subject)
	if cell.Apart == "" {
		s, err := m.read(t, name)
		switch {
		case err == nil:
			if cell.Scenario, err = s.With(m.set); err != nil {
				return err
			}
		case t.Family == "": // the suite file says what to draw
			return err
		default:
			cell.NotRun, _, _ = strings.Cut(err.Error(), "\n") // without the line and a caret
			cell.Missing = true
		}
	}
	m.add(cell)
	return nil
}

// read returns a story as a scenario of the lock.
func (m *maker) read(t stories.Story, name string) (s scenarios.Scenario, err error) {
	text, err := t.Scenario("suite-", m.subject)
	if err != nil {
		return s, err
	}
	return scenarios.Parse([]byte(text), name+".yaml")
}

// scenario adds a scenario that comes with lockquake or from a file, if it is about the backend.
func (m *maker) scenario(s scenarios.Scenario) (err error) {
	const around = 3 * time.Second
	cell := m.base
	cell.Story, cell.Claim = s.Name, s.Claim
	if s.Backend.Use != m.row.Backend {
		cell.Apart = "the story is about " + s.Backend.Use
		m.add(cell)
		return nil
	}
	if cell.Scenario, err = s.With(append([]string{"backend.lock=" + m.row.Lock}, m.set...)); err != nil {
		return err
	}
	cell.Estimate = (around + s.Takes()).Milliseconds()
	m.add(cell)
	return nil
}
