package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/scenarios"
)

// completeFlag completes the values of a flag that was added before: then it cannot fail.
func completeFlag(c *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = c.RegisterFlagCompletionFunc(flag, by)
}

// completeBackendAndLock completes --backend, and --lock by the locks of that backend; without one, by those of all.
func completeBackendAndLock(c *cobra.Command) {
	completeFlag(c, "backend", cobra.FixedCompletions(backendNames(ownBackends(catalog())), cobra.ShellCompDirectiveNoFileComp))
	completeFlag(c, "lock", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		backend, _ := c.Flags().GetString("backend") // it was added
		var out []string
		for _, b := range ownBackends(catalog()) {
			for _, l := range b.Locks {
				if backend == "" || b.Name == backend {
					out = append(out, cobra.CompletionWithDesc(l.Name, l.Doc))
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeDir completes a flag that names a directory.
func completeDir(c *cobra.Command, flags ...string) {
	for _, f := range flags {
		_ = c.MarkFlagDirname(f) // as completeFlag
	}
}

// completeLock offers BACKEND and BACKEND/LOCK, and files for a verb that takes them.
func completeLock(rest cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, b := range ownBackends(catalog()) {
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

// completeStory offers the stories of the default suite, the scenarios that come with lockquake, and files.
func completeStory(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append([]string{"quick"}, stories.Names()...) {
		if strings.HasPrefix(name, begun) {
			out = append(out, name)
		}
	}
	known, rest := completeScenario(c, args, begun)
	return append(out, known...), rest
}

// completeScenario offers the scenarios that come with lockquake, and files.
func completeScenario(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range scenarios.Names() {
		if strings.HasPrefix(s.Name, begun) {
			claim, _, _ := strings.Cut(s.Claim, ". ")
			out = append(out, cobra.CompletionWithDesc(s.Name, claim))
		}
	}
	return out, cobra.ShellCompDirectiveDefault
}

// completeRunDir offers directories.
func completeRunDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
