package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

func historyCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "history RUN-DIR",
		Short: "Print the events of a run in the order of time",
		Long: "History prints the events of all processes of a run, merged by time: as a line for people (text), or as JSON Lines\n" +
			"whose times are nanoseconds of CLOCK_MONOTONIC.",
		Args:              words.OneRun,
		ValidArgsFunction: words.CompleteRunDir,
	}
	f := cli.AddFormat(c, "jsonl", "text")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		if err := words.IsRunDir(args[0]); err != nil {
			return err
		}
		m, err := history.OpenAll(filepath.Join(args[0], results.DirHistory))
		if err != nil {
			return err
		}
		defer func() { _ = m.Close() }() // the files were only read
		if f.Value == "jsonl" {
			return history.WriteJSONL(std.Out, m)
		}
		env, _ := results.ReadEnv(args[0]) // without it times count from the first event
		return historyText(std.Out, m, env.Start)
	}
	return c
}

// historyText writes one line per event. Times are relative to start, or to the first event.
func historyText(w io.Writer, m *history.Merge, start int64) error {
	return m.Write(w, func(b []byte, e *history.Event, process string) []byte {
		if start == 0 {
			start = e.Time
		}
		return append(b, eventText(e, process, m.Locks(), start)...)
	})
}

// eventText formats one event as a line.
func eventText(e *history.Event, process string, locks []string, start int64) string {
	s := fmt.Sprintf("%12.3f ms  %-12s %-14s %-13s %-6s", ms(e.Time-start), process, e.User, e.Kind, e.Phase)
	if int(e.Lock) < len(locks) {
		s += "  " + locks[e.Lock]
	}
	if e.Grant != 0 {
		s += fmt.Sprintf("  grant %d", e.Grant)
	}
	if e.Token != 0 {
		s += fmt.Sprintf("  token %d", e.Token)
	}
	switch e.Valid {
	case 0, history.ValidUnknown:
	case history.ValidEndless:
		s += "  valid without end"
	default:
		if e.Kind != history.Final {
			s += fmt.Sprintf("  valid until %.3f ms", ms(e.Valid-start))
		}
	}
	if e.Kind == history.Read || e.Kind == history.Write || e.Kind == history.EffectRead ||
		e.Kind == history.EffectWrite ||
		e.Kind == history.Final {
		s += fmt.Sprintf("  value %d", e.Value)
	}
	if e.Kind == history.Stall {
		s += fmt.Sprintf("  %v", time.Duration(e.Value))
	}
	if e.Code != history.CodeNone {
		s += "  " + history.CodeName(e.Code)
	}
	return s + "\n"
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
