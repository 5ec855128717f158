package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wire"
)

func versionCommand(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version, and those of its formats",
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(std.Out, "lockquake %s %s %s/%s, protocol %d, history %d\n",
				cli.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.Version, history.Version)
			return err
		},
	}
}
