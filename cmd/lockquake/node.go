package main

import (
	"github.com/spf13/cobra"

	etcdnode "github.com/lockquake/lockquake/backends/etcd/node"
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
	c.AddCommand(nodeCommands(std)...)
	return c
}
