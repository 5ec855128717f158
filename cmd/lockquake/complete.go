package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/scenarios"
)

// completeRunDir offers directories.
func completeRunDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
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
