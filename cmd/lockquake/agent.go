package main

import (
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/agent"
)

func agentCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Act on the processes of a run from the host's pid namespace",
		Hidden: true,
		Long: "Agent inspects and signals the processes that it is told to, over standard streams, and heals all that it did when its\n" +
			"standard input ends. Lockquake starts it; nobody else needs to.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return agent.Main(c.Context(), std.in, std.out) },
	}
}
