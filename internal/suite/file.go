package suite

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/lockquake/lockquake/scenarios"
)

// Config is the content of a suite file: locks, stories, and bounds.
type Config struct {
	Name    string        `yaml:"name"`
	Locks   []Row         `yaml:"locks"`
	Stories []string      `yaml:"stories"` // "default", "quick", names, patterns, YAML files; none: "default"
	Random  *Random       `yaml:"random"`
	Repeat  int           `yaml:"repeat"` // runs of each cell; 0: 1
	Budget  time.Duration `yaml:"budget"` // of the whole; 0: UsualBudget
	TTL     time.Duration `yaml:"ttl"`    // 0: 2s, or the shortest that the lock honours
	Clients int           `yaml:"clients"`
	Users   int           `yaml:"users"` // of each client
	// Most bounds the number of stories per lock; 0: unlimited. Quick shortens runs whose length is free.
	Most  int  `yaml:"most"`
	Quick bool `yaml:"-"`

	params scenarios.Params // for errors with line and caret
	dir    string           // of the suite file; relative paths start there
}

// Row is a lock of the suite.
type Row struct {
	Name    string   `yaml:"name"` // in the table; "": backend/lock
	Backend string   `yaml:"backend"`
	Lock    string   `yaml:"lock"`    // "": the backend's first; "*": all
	Set     []string `yaml:"set"`     // keys of the scenarios, as --set takes them
	Stories []string `yaml:"stories"` // replaces the suite's
	// Client is a program that replaces lockquake's own client.
	Client *scenarios.Client `yaml:"client"`
}

// Random is drawn chaos, a cell for each seed.
type Random struct {
	Seeds  []uint64      `yaml:"seeds"`
	Faults []string      `yaml:"faults"` // none: pause, partition, delay
	On     []string      `yaml:"on"`     // none: holder, clients
	For    time.Duration `yaml:"for"`    // 0: ten TTLs
	// Expect is added to the expectations of a story of drawn faults, or overrides them: "lost_updates: 0" for a lock
	// whose resource rejects late writes.
	Expect map[string]string `yaml:"expect"`
}

// ReadFile reads a suite file strictly: an unknown key is an error with line and caret.
func ReadFile(data []byte, file string) (c Config, err error) {
	if c.params, err = scenarios.ReadParams(data, file); err != nil {
		return c, err
	}
	if err := c.params.Decode(&c); err != nil {
		return c, err
	}
	c.dir = filepath.Dir(file)
	switch {
	case len(c.Locks) == 0:
		return c, c.errorf("locks", "is empty: want a list such as [{backend: redis, lock: set-px-lua}]")
	case c.Repeat < 0:
		return c, c.errorf("repeat", "%d is too few; at least 1", c.Repeat)
	case c.Budget < 0:
		return c, c.errorf("budget", "%v is negative", c.Budget)
	case c.TTL < 0:
		return c, c.errorf("ttl", "%v is negative", c.TTL)
	case c.Clients < 0, c.Users < 0, c.Most < 0:
		return c, c.errorf("locks", "clients, users and most must be at least 1")
	case c.Random != nil && len(c.Random.Seeds) == 0:
		return c, c.errorf("random", "has no seeds: want a list such as seeds: [1, 2, 3]")
	}
	return c, nil
}

// UsualBudget returns the budget of a suite that sets neither stories, drawn faults nor repeats. For any other it
// returns 0, which is unlimited.
func (c Config) UsualBudget() time.Duration {
	chosen := func(r Row) bool { return len(r.Stories) > 0 }
	if len(c.Stories) > 0 || c.Random != nil || c.Repeat > 1 || slices.ContainsFunc(c.Locks, chosen) {
		return 0
	}
	return 25 * time.Minute
}

func (c Config) errorf(key, format string, args ...any) error {
	return c.params.Errorf(key, format, args...)
}

// sets returns the keys that a row sets in each of its scenarios.
func (r Row) sets(dir string) ([]string, error) {
	out := r.Set
	if r.Client == nil {
		return out, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	key, err := r.Client.In(dir).Set()
	return append(out[:len(out):len(out)], key), err
}
