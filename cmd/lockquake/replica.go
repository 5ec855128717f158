package main

import (
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/workloads/resource"
)

func replicaCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:    "replica",
		Short:  "Be one replica of a replicated resource",
		Hidden: true,
		Long: "Replica holds a copy of what locks protect, refuses lower epochs than the highest that it has seen, and keeps its own\n" +
			"log. It is driven over standard streams as docs/protocol.md tells. Lockquake starts it; nobody else needs to.",
		Args: noArgs,
	}
	listen := c.Flags().String("listen", ":7071", "address to listen on, host:port")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return resource.Replica(c.Context(), resource.Options{Listen: *listen, In: std.in, Out: std.out, Version: version})
	}
	return c
}
