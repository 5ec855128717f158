package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/scenarios"
)

// ofSuite reports whether a word names stories of the regression suite, and no file.
func ofSuite(word string) bool {
	return strings.HasPrefix(word, suite.Folder) && !strings.Contains(word, ".yaml") && !strings.Contains(word, ".yml")
}

// against is a lock that stories of the regression suite are told of: --lock, and what else says what the lock is.
type against struct {
	lock   string // BACKEND or BACKEND/LOCK; "": none is named
	client *scenarios.Client
	set    []string
	ask    suite.Ask
	tell   func(format string, args ...any) // that a story does not apply, where others may
}

// addLock adds --lock.
func addLock(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "lock", "", "of stories of the regression suite, such as suite/late-release: the lock that is put to them, BACKEND or BACKEND/LOCK")
	completeFlag(c, "lock", completeLock(cobra.ShellCompDirectiveNoFileComp))
}

// load returns the scenarios that a word names: those that the lock is put to by stories of the suite, and others as they are.
func (a against) load(word string) ([]scenarios.Scenario, error) {
	if !ofSuite(word) {
		return scenarios.Load(word)
	}
	if a.lock == "" {
		return nil, cli.Usagef("%s: a story of the regression suite is for any lock; name one, such as --lock redis/set-px-lua", word)
	}
	backend, lock, _ := strings.Cut(a.lock, "/")
	row := suite.Row{Backend: backend, Lock: lock, Client: a.client, Set: a.set}
	cells, err := suite.Plan(suite.Config{Locks: []suite.Row{row}, Stories: []string{word}}, catalog().Backends, a.ask)
	switch {
	case errors.Is(err, suite.ErrNoLock):
		return nil, cli.Usagef("--lock: %v; `lockquake list locks` lists them all", err)
	case errors.Is(err, suite.ErrNoStory), err == nil && len(cells) == 0:
		return nil, cli.Usagef("%s: %s has no such story; `lockquake list scenarios --suite` lists them", word, a.lock)
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
			a.tell("does not apply: %s, %s: %s", c.Lock, c.Story, c.Apart)
		default:
			out = append(out, c.Scenario)
		}
	}
	return out, nil
}

// listSuite lists the stories of the regression suite.
func listSuite() []item {
	var out []item
	for _, t := range stories.All() {
		name := suite.Folder + t.Name
		out = append(out, item{Name: name, Doc: t.Claim, Needs: t.Needs, File: name + ".yaml", path: name})
	}
	return out
}

// completeAnyScenario offers the scenarios that come with lockquake, files, and once its name is begun, the regression suite.
func completeAnyScenario(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	out, rest := completeScenario(c, args, begun)
	for _, x := range listSuite() {
		if len(begun) > 1 && strings.HasPrefix(x.Name, begun) {
			claim, _, _ := strings.Cut(x.Doc, ". ")
			out = append(out, cobra.CompletionWithDesc(x.Name, claim))
		}
	}
	return out, rest
}

// suiteFiles are the files of stories of the suite, as they are.
func suiteFiles(word string) (out [][]byte, err error) {
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
