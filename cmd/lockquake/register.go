package main

import (
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/workloads/resource"
)

func registerCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:    "register",
		Short:  "Be the register: the resource that locks protect in a run",
		Hidden: true,
		Long: "Register is a small TCP service that applies reads and writes in the order of their arrival, keeps its own log of\n" +
			"them, and can refuse old fencing tokens. It is driven over standard streams as docs/protocol.md tells. Lockquake\n" +
			"starts it; nobody else needs to.",
		Args: noArgs,
	}
	listen := c.Flags().String("listen", ":7070", "address to listen on, host:port")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return resource.Main(c.Context(), resource.Options{Listen: *listen, In: std.in, Out: std.out, Version: version})
	}
	return c
}
