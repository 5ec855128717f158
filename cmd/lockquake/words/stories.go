package words

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/scenarios"
)

// Against is the lock on which stories of the regression suite are run: the value of --lock and the flags that change
// it.
type Against struct {
	Lock   string // BACKEND or BACKEND/LOCK; "": none is named
	Client *scenarios.Client
	Set    []string
	Ask    suite.Ask
	Tell   func(format string, args ...any) // reports that a story does not apply, while others may
}

// AddLock adds --lock.
func AddLock(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "lock", "",
		"with stories of the regression suite, such as suite/late-release: the lock under test, BACKEND or BACKEND/LOCK")
	CompleteFlag(c, "lock", CompleteLock(cobra.ShellCompDirectiveNoFileComp))
}

// Load returns the scenarios that a word names. Stories of the suite are made for the lock; other scenarios are
// returned as they are.
func (a Against) Load(word string) ([]scenarios.Scenario, error) {
	if !nodes.OfSuite(word) {
		return scenarios.Load(word)
	}
	if a.Lock == "" {
		return nil, cli.Usagef("%s: a story of the regression suite needs a lock, such as --lock redis/set-px-lua", word)
	}
	backend, lock, _ := strings.Cut(a.Lock, "/")
	row := suite.Row{Backend: backend, Lock: lock, Client: a.Client, Set: a.Set}
	cells, err := suite.Plan(suite.Config{Locks: []suite.Row{row}, Stories: []string{word}}, nodes.Catalog().Backends,
		a.Ask)
	switch {
	case errors.Is(err, suite.ErrNoLock):
		return nil, cli.Usagef("--lock: %v; `lockquake list locks` lists them all", err)
	case errors.Is(err, suite.ErrNoStory), err == nil && len(cells) == 0:
		return nil, cli.Usagef("%s: %s has no such story; `lockquake list scenarios --suite` lists them", word, a.Lock)
	case err != nil:
		return nil, err
	}
	var out []scenarios.Scenario
	for _, c := range cells {
		switch {
		case c.NotRun != "":
			return nil, engine.MissingError{Text: fmt.Sprintf("%s, %s: %s", c.Lock, c.Story, c.NotRun)}
		case c.Apart != "" && len(cells) == 1:
			return nil, cli.Usagef("%s does not apply to %s: %s", suite.Folder+c.Story, c.Lock, c.Apart)
		case c.Apart != "":
			a.Tell("does not apply: %s, %s: %s", c.Lock, c.Story, c.Apart)
		default:
			out = append(out, c.Scenario)
		}
	}
	return out, nil
}

// CompleteAnyScenario completes scenarios that come with lockquake, files, and stories of the regression suite once
// the word begins with its name.
func CompleteAnyScenario(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	out, rest := CompleteScenario(c, args, begun)
	for _, t := range stories.All() {
		if name := suite.Folder + t.Name; len(begun) > 1 && strings.HasPrefix(name, begun) {
			claim, _, _ := strings.Cut(t.Claim, ". ")
			out = append(out, cobra.CompletionWithDesc(name, claim))
		}
	}
	return out, rest
}

// StoryFiles returns the unchanged files of stories of the suite.
func StoryFiles(word string) (out [][]byte, err error) {
	for _, x := range stories.All() {
		if (scenarios.Listing{Path: suite.Folder + x.Name}).Matches(word) {
			out = append(out, []byte(x.Text))
		}
	}
	if len(out) == 0 {
		return nil, cli.Usagef("%s: there is no such story; `lockquake list scenarios --suite` lists them", word)
	}
	return out, nil
}
