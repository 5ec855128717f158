// Command node is testnode as a program of its own, for images made of nothing else.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lockquake/lockquake/internal/cluster/testdata/testnode"
)

func main() {
	if err := testnode.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
