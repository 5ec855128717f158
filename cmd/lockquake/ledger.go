package main

import (
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/workloads/resource"
)

func ledgerCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use:    "ledger RESOURCE",
		Short:  "Be the ledger of a resource: lay out its store, and tell what its log says",
		Hidden: true,
		Long: "Ledger stands beside a resource that is a real service, such as postgres. It is driven over standard streams as\n" +
			"docs/protocol.md tells. Lockquake starts it; nobody else needs to.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return resource.Ledger(c.Context(), resource.Options{In: std.in, Out: std.out, Version: version}, args[0])
		},
	}
}
