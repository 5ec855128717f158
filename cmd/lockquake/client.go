package main

import (
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/client"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

func clientCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use:    "client",
		Short:  "Be a client process: many lock users, driven over standard streams",
		Hidden: true,
		Long: "Client speaks the protocol of docs/protocol.md on standard input and output. Lockquake starts it; nobody else needs to.\n" +
			"It ends when its standard input does.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return client.Main(c.Context(), client.Options{
				Backends: all.All(), Workloads: workloads.All(), Resources: resource.Kinds(),
				In: std.in, Out: std.out, Version: version, Libraries: all.Built(), InProcess: std.goroutine,
			})
		},
	}
}
