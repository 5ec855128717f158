package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

// release is the number of this version. CHANGELOG.md says what is in it.
const release = "0.1.0"

// commit is set by the build: the commit that was built, with "-dirty" where files differed from it. A build by `go
// install` has none.
var commit string

// version is what a run records of the program that made it.
var version = versionOf(commit)

func versionOf(commit string) string {
	if commit == "" {
		return release
	}
	return release + " (" + commit + ")"
}

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
