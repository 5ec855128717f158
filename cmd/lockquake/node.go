package main

import (
	"github.com/spf13/cobra"

	etcdnode "github.com/lockquake/lockquake/backends/etcd/node"
	"github.com/lockquake/lockquake/internal/agent"
)

func nodeCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:    "node",
		Short:  "Be a server node of a service that is built in",
		Hidden: true,
		Args:   verbOnly,
		RunE:   func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:                "etcd [ETCD-FLAGS]",
		Short:              "Be an etcd member: the real server, with all of etcd's own flags",
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return etcdnode.RunNode(args) },
	})
	c.AddCommand(&cobra.Command{
		Use:                "on-disk DEVICE DIRECTORY PROGRAM ARGV...",
		Short:              "Mount a disk for this process alone, and become a program on it",
		Args:               cobra.MinimumNArgs(4),
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return agent.OnDisk(args[0], args[1], args[2:]) },
	})
	c.AddCommand(nodeCommands(std)...)
	return c
}
