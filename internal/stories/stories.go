// Package stories holds the default suite of a lock: the stories of scenarios/suite. Each becomes a scenario for
// every lock that offers what the story is about. `lockquake suite` uses it directly, and package locktest asks the
// program for the stories.
package stories

import (
	"cmp"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/scenarios/suite"
)

// Story is a scenario for a lock. It expects what holds for every lock, whatever breaks: no double grants, no foreign
// releases, no falling tokens (lockquake's defaults), and no lock that stays taken.
type Story struct {
	Name   string // for one about points, Of puts a point of the lock in place of POINT
	Family string // its name in All; "": it is drawn
	Claim  string
	Note   string   // the documentation's addition to the claim
	Quick  bool     // it takes seconds, and belongs to a quick suite
	Grants int64    // the number of grants it is about; 0: it is not about a number
	Needs  []string // traits of the locks that it applies to
	Text   string   // its file

	turn  int    // among the stories of a lock
	ttl   string // of the lock; "": the suite's
	takes string // estimated time; "": its steps wait for one grant to end
	// durable says that its servers keep their data over a restart, whatever the backend's default is.
	durable bool
	permits int    // of the lock; 0: the backend's
	per     string // the points it is repeated for; "": none
	like    string // the story whose lines it shares; "": its own
	lines   []line
	err     error // why its file cannot be read

	point string
	place int // of the point among those of the lock
}

// Why returns why the story does not apply to the lock; "" if it does.
func (t Story) Why(s Subject) string {
	for _, word := range t.Needs {
		if x, _ := traitOf(word); !x.of(s) {
			return strings.ReplaceAll(x.lacks, "%s", s.Backend)
		}
	}
	return ""
}

// Where describes in a few words the locks that the story applies to.
func (t Story) Where() string {
	var out []string
	for _, word := range t.Needs {
		x, _ := traitOf(word)
		out = append(out, x.where)
	}
	return cmp.Or(strings.Join(out, "; "), "always")
}

// Estimate returns the estimated time of a run of the story, without the start of servers.
func (t Story) Estimate(s Subject) time.Duration {
	s = t.with(s)
	// clients start, and what was broken settles
	const starts, settles = time.Second, time.Second
	if t.takes == "" {
		return starts + s.TTL
	}
	takes, _ := s.time(t.takes) // read checked that it parses
	return starts + settles + takes
}

// Of lists the stories of a lock in the order in which they are run, including those that do not apply. Stories about
// points have a point of this lock in their name.
func Of(s Subject) []Story { return of(All(), s) }

func of(all []Story, s Subject) []Story {
	points := s.points()
	var out []Story
	for _, t := range all {
		for i, p := range points[t.per] {
			x := t
			if t.per != "" {
				x.Name, x.Claim = strings.ReplaceAll(t.Name, "POINT", p), strings.ReplaceAll(t.Claim, "POINT", p)
				x.point, x.place = p, i
			}
			out = append(out, x)
		}
	}
	return inTurn(out)
}

// inTurn sorts stories: quick ones first, and those about one point together.
func inTurn(list []Story) []Story {
	slices.SortStableFunc(list, func(a, b Story) int {
		if a.Quick != b.Quick {
			return map[bool]int{true: -1, false: 1}[a.Quick]
		}
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.place, b.place))
	})
	return list
}

// All lists the stories in their turn, those about points once.
func All() []Story { return slices.Clone(own()) }

var own = sync.OnceValue(func() []Story { return Read(suite.Files) })

// Read reads the stories in the files of a folder. An error in a file is returned by the Scenario method of its
// story, and affects no other.
func Read(folder fs.FS) []Story {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		panic(err) // the pattern is valid
	}
	names := map[string]bool{}
	for _, file := range files {
		names[nameOf(file)] = true
	}
	var out []Story
	byName := map[string]Story{}
	for _, file := range files {
		text, err := fs.ReadFile(folder, file)
		t := Story{err: err}
		if err == nil {
			t = read("scenarios/suite/"+file, string(text), names)
		}
		t.Name, t.Family = nameOf(file), nameOf(file)
		byName[t.Name] = t
		out = append(out, t)
	}
	for i, t := range out {
		if t.like != "" && t.err == nil {
			out[i].lines, out[i].err = byName[t.like].lines, byName[t.like].err
		}
	}
	return inTurn(out)
}

// Names lists the names of the stories of All.
func Names() []string {
	var out []string
	for _, t := range own() {
		out = append(out, t.Name)
	}
	return out
}
