package suite

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/scenarios"
)

// What a suite has that says nothing.
const (
	usualTTL     = 2 * time.Second // etcd as it is set up here keeps no shorter lease
	usualClients = 3
	usualUsers   = 4
	quickUsers   = 2
)

// ErrNoLock says that a row names no lock that there is.
var ErrNoLock = errors.New("no such lock")

// Plan makes the cells: each lock put to each story, those of one topology together.
func Plan(c Config, known []backends.Backend) ([]Cell, error) {
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
			cells, err := c.cells(r)
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
			return nil, c.locate("locks", fmt.Errorf("%s has the story %s twice; give one of the rows a name of its own", cell.Lock, cell.Story))
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

// locate makes an error one about a key of the file, where there is a file.
func (c Config) locate(key string, err error) error {
	if c.dir == "" {
		return err
	}
	return c.errorf(key, "%v", err)
}

// known is a row whose lock was found.
type known struct {
	Row
	backend backends.Backend
	lock    backends.Lock
}

// Locks finds the locks that BACKEND, BACKEND/LOCK or "BACKEND/*" name: the default one, one, or all.
func Locks(backend, lock string, list []backends.Backend) (b backends.Backend, locks []backends.Lock, err error) {
	i := slices.IndexFunc(list, func(b backends.Backend) bool { return b.Name == backend })
	if i < 0 {
		var names []string
		for _, b := range list {
			names = append(names, b.Name)
		}
		return b, nil, fmt.Errorf("%w: there is no backend %q; there are %s", ErrNoLock, backend, strings.Join(names, ", "))
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
		return b, nil, fmt.Errorf("%w: %s has no lock %q; it has %s", ErrNoLock, b.Name, lock, strings.Join(names, ", "))
	}
	return b, []backends.Lock{l}, nil
}

// expand finds the locks that a row names.
func expand(row Row, list []backends.Backend) ([]known, error) {
	b, locks, err := Locks(row.Backend, row.Lock, list)
	var out []known
	for _, l := range locks {
		row.Lock = l.Name
		out = append(out, known{row, b, l})
	}
	return out, err
}

// cells makes those of one lock.
func (c Config) cells(r known) ([]Cell, error) {
	s := c.subject(r)
	set, err := r.sets(c.dir)
	if err != nil {
		return nil, err
	}
	m := maker{row: r, subject: s, set: set, base: Cell{
		Lock: r.Name, Foreign: r.Client != nil, topology: r.Backend + " " + strings.Join(set, " "),
	}}
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
			t := stories.Random(seed, c.Random.Faults, c.Random.On, c.Random.For)
			if err := m.template(t, fmt.Sprintf("random-%d", seed)); err != nil {
				return nil, err
			}
		}
	}
	turn := 0
	for i := range m.cells {
		if m.cells[i].Apart != "" {
			continue
		}
		m.cells[i].turn = turn
		if turn++; c.Most > 0 && turn > c.Most {
			m.cells[i].NotRun = fmt.Sprintf("at most %d stories of a lock were asked for", c.Most)
		}
	}
	return m.cells, nil
}

// subject is the lock as stories see it.
func (c Config) subject(r known) stories.Subject {
	users := usualUsers
	if c.Quick {
		users = quickUsers
	}
	s := stories.Subject{
		Backend: r.Backend, Lock: r.lock, TTL: max(cmp.Or(c.TTL, usualTTL), r.lock.MinTTL), Clients: cmp.Or(c.Clients, usualClients), Users: cmp.Or(c.Users, users),
		InProcess: r.backend.InProcess, Quick: c.Quick,
	}
	if r.Client != nil {
		s.Lock.Points, s.Foreign = nil, true // the points of another program are not known
	}
	return s
}

// maker makes the cells of one lock.
type maker struct {
	row     known
	subject stories.Subject
	set     []string
	base    Cell
	cells   []Cell
}

// word adds the stories that one word of the list names.
func (m *maker) word(c Config, word string) error {
	found := false
	for _, t := range stories.Of(m.subject) {
		match, err := path.Match(word, t.Name)
		if err != nil {
			return c.locate("stories", fmt.Errorf("%q is no pattern", word))
		}
		if word == "default" || word == "quick" && t.Quick || match {
			found = true
			if err := m.template(t, t.Name); err != nil {
				return err
			}
		}
	}
	if found || ofSomeLock(word) {
		return nil
	}
	name := word
	if strings.HasSuffix(word, ".yaml") && !path.IsAbs(word) && c.dir != "" {
		name = path.Join(c.dir, word)
	}
	list, err := scenarios.Load(name)
	var wrong *scenarios.Error
	if errors.As(err, &wrong) && wrong.Line == 0 {
		return c.locate("stories", fmt.Errorf("%w; the stories of the default suite are %s", err, strings.Join(stories.Names(), ", ")))
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

// ofSomeLock says that a word names stories that other locks have: those about a point.
func ofSomeLock(word string) bool {
	return slices.ContainsFunc(stories.Names(), func(name string) bool {
		family, point := strings.CutSuffix(name, "POINT")
		match, _ := path.Match(word, name) // that it is a pattern was asked before
		return match || point && strings.HasPrefix(word, family)
	})
}

// add adds a cell, unless the lock has it already.
func (m *maker) add(cell Cell) {
	if !slices.ContainsFunc(m.cells, func(o Cell) bool { return o.Story == cell.Story }) {
		m.cells = append(m.cells, cell)
	}
}

// template adds a story of the default suite.
func (m *maker) template(t stories.Story, name string) error {
	cell := m.base
	cell.Story, cell.Claim, cell.Estimate, cell.Apart = name, t.Claim, t.Estimate(m.subject).Milliseconds(), t.Why(m.subject)
	if cell.Apart == "" {
		text, err := t.Scenario("suite-", m.subject)
		if err != nil {
			return err
		}
		s, err := scenarios.Parse([]byte(text), name+".yaml")
		if err != nil {
			return err
		}
		if cell.Scenario, err = s.With(m.set); err != nil {
			return err
		}
	}
	m.add(cell)
	return nil
}

// scenario adds one that comes with lockquake or is a file, where it is about the backend.
func (m *maker) scenario(s scenarios.Scenario) (err error) {
	const around, ofSteps = 3 * time.Second, 10 * time.Second
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
	takes := around + s.Run.Settle
	if s.Workload.Use != "" {
		takes += s.Run.For
	}
	if len(s.Steps) > 0 {
		takes += ofSteps
	}
	cell.Estimate = takes.Milliseconds()
	m.add(cell)
	return nil
}
