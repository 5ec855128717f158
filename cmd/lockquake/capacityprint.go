package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/lockquake/lockquake/results/capacity"
)

// printCapacity is a stand-in.
func printCapacity(w io.Writer, dir string, a capacity.Analysis) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range a.Curves {
		fmt.Fprintln(t, c.Name())
		for _, r := range append(c.Closed, c.Open...) {
			fmt.Fprintf(t, "%d\t%.0f\t%v\tp50 %v\tp99 %v\tN %v\t%v\n", r.Users, r.Rate, r.Cycles, r.Latency["p50"], r.Latency["p99"], r.InService, r.Limit.Cause)
		}
		fmt.Fprintf(t, "fit %+v %s kept %+v\n", c.Fit, c.NoFit, c.Kept)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, shorten(dir))
	return err
}
