package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

func versionCommand(std streams) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version, and those of the formats that it speaks",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(std.out, "lockquake %s %s %s/%s, protocol %d, history %d\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.Version, history.Version)
			return err
		},
	}
}
