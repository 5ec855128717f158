// Package words resolves and completes the words of a command line: scenarios, stories, locks, directories of runs.
package words

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/scenarios"
)

// CompleteFlag completes the values of a flag. The flag must exist, so that it cannot fail.
func CompleteFlag(c *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = c.RegisterFlagCompletionFunc(flag, by)
}

// CompleteBackendAndLock completes --backend, and --lock with the locks of that backend, or of all without one.
func CompleteBackendAndLock(c *cobra.Command) {
	CompleteFlag(c, "backend", cobra.FixedCompletions(nodes.BackendNames(nodes.OwnBackends(nodes.Catalog())),
		cobra.ShellCompDirectiveNoFileComp))
	CompleteFlag(c, "lock", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		backend, _ := c.Flags().GetString("backend") // the flag exists
		var out []string
		for _, b := range nodes.OwnBackends(nodes.Catalog()) {
			for _, l := range b.Locks {
				if backend == "" || b.Name == backend {
					out = append(out, cobra.CompletionWithDesc(l.Name, l.Doc))
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// CompleteDir completes flags that name a directory.
func CompleteDir(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		_ = c.MarkFlagDirname(f) // cannot fail, as in CompleteFlag
	}
}

// CompleteLock completes BACKEND and BACKEND/LOCK, and files for verbs that take them.
func CompleteLock(rest cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, b := range nodes.OwnBackends(nodes.Catalog()) {
			names := []string{cobra.CompletionWithDesc(b.Name, b.Doc)}
			for _, l := range b.Locks {
				names = append(names, cobra.CompletionWithDesc(b.Name+"/"+l.Name, l.Doc))
			}
			for _, n := range names {
				if strings.HasPrefix(n, begun) {
					out = append(out, n)
				}
			}
		}
		return out, rest
	}
}

// CompleteStory completes stories of the default suite, scenarios that come with lockquake, and files.
func CompleteStory(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append([]string{"quick"}, stories.Names()...) {
		if strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	known, rest := CompleteScenario(c, args, begun)
	return append(out, known...), rest
}

// CompleteScenario completes scenarios that come with lockquake, and files.
func CompleteScenario(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range scenarios.Names() {
		if strings.HasPrefix(s.Name, begun) {
			claim, _, _ := strings.Cut(s.Claim, ". ")
			out = append(out, cobra.CompletionWithDesc(s.Name, claim))
		}
	}
	return out, cobra.ShellCompDirectiveDefault
}
