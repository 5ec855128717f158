package choose

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/sheet"
)

// The columns of the table, and the heading above those of one load.
var (
	loadColumns = []string{"grants/s", "p50", "p99", "handoff", "requests"}
	lossColumns = []string{"gap", "double grants"}
)

// table returns a row for each lock, below two header rows.
func (r Result) table() [][]string {
	over, head := []string{""}, []string{"lock"}
	for _, n := range loads {
		over = append(append(over, figure.Of(n, "lock")), make([]string, len(loadColumns)-1)...)
		head = append(head, loadColumns...)
	}
	over, head = append(over, "a server is killed", "", "", ""),
		append(append(head, lossColumns...), "token", "what breaks it")
	out := [][]string{over, head}
	for _, row := range r.Rows {
		line := []string{row.Backend + "/" + row.Lock}
		for _, l := range row.Loads {
			line = append(line, l.cells()...)
		}
		line = append(line, row.lossCells()...)
		out = append(out, append(line, row.Token, row.breaks()))
	}
	return out
}

// cells returns the medians over the usable samples.
func (l Load) cells() []string {
	median := func(of func(capacity.Sample) *float64) string {
		var list []float64
		for _, s := range l.Samples {
			if v := of(s); s.Spoilt == "" && v != nil {
				list = append(list, *v)
			}
		}
		if len(list) == 0 {
			return "-"
		}
		return figure.Number(capacity.Summary(list).Mid)
	}
	acquires := int64(0) // 0: an older file does not have it
	for _, s := range l.Samples {
		if s.Spoilt == "" {
			acquires += s.Acquires
		}
	}
	quantile := func(name string, level float64) func(capacity.Sample) *float64 {
		return func(s capacity.Sample) *float64 {
			if v, ok := s.Latency[name]; ok && (acquires == 0 || acquires >= figure.Samples(level)) {
				return &v
			}
			return nil
		}
	}
	return []string{
		median(func(s capacity.Sample) *float64 { return &s.Cycles }), median(quantile("p50", 0.5)),
		median(quantile("p99", 0.99)),
		median(func(s capacity.Sample) *float64 { return s.Handoff }),
		median(func(s capacity.Sample) *float64 { return s.Requests }),
	}
}

func (r Row) lossCells() []string {
	gap, double := "-", "-"
	if r.Loss != nil && r.Loss.Gap != nil {
		gap = figure.Milli(*r.Loss.Gap)
	}
	if r.Loss != nil && r.Loss.Bit && r.Loss.Double != nil {
		double = figure.Count(*r.Loss.Double)
	}
	return []string{gap, double}
}

// breaks names, for each kind of violation that is the worst of some story, the worst such story.
func (r Row) breaks() string {
	var words, seen []string
	for _, b := range r.Breaks {
		if slices.Contains(seen, b.Counts[0]) {
			continue
		}
		seen = append(seen, b.Counts[0])
		words = append(words, strings.ReplaceAll(b.Counts[0], "_", " ")+": "+b.Story)
	}
	if len(words) == 0 {
		return "no specific story"
	}
	return strings.Join(words, "; ")
}

// legend explains the columns.
func (r Result) legend() []string {
	return []string{
		fmt.Sprintf("%d users in 2 processes, without a pause between cycles; median of the runs (%d, each %v). grants/s: released grants; p50, p99: of the acquire, in ms;", r.Users, r.Repeat, time.Duration(r.Measured)),
		"handoff: from a release to the next grant, median, in ms; requests: per grant, as counted by the servers",
		fmt.Sprintf("a server is killed: the leader, the server that has the lock, or one of several equal ones, for %v; ttl %v. gap: the longest time without a grant while a user asked", lossFor, ttl),
		"token: service: fencing tokens come from the service, home-made: from a counter next to the lock",
		"what breaks it: stories that show it, `lockquake run STORY`; docs/choosing.md interprets them",
	}
}

// Text writes the table for a terminal.
func (r Result) Text(w io.Writer) error {
	fmt.Fprintln(w, figure.Table(r.table()).Text())
	for _, line := range append(r.Left(), r.legend()...) {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintf(w, "again: %s\n", r.Command)
	return err
}

// Left lists what is missing, and why.
func (r Result) Left() (out []string) {
	for _, row := range r.Rows {
		name := row.Backend + "/" + row.Lock
		switch {
		case row.NotRun != "":
			out = append(out, name+": not run: "+row.NotRun)
		case row.Loss != nil && !row.Loss.Bit:
			out = append(out, name+": its server was not killed: "+strings.Join(row.Loss.Reasons, "; "))
		case row.Loss != nil && row.Loss.Double == nil:
			out = append(out, name+": the loss of its server was not judged: "+strings.Join(row.Loss.Reasons, "; "))
		}
	}
	return out
}

// Page returns the table with its legend and notes.
func (r Result) Page() sheet.Page {
	t := r.table()
	return sheet.Page{
		Title: "Locks side by side",
		Head: []string{
			fmt.Sprintf("%d locks, provider %s, one machine of %s cores; seed %d; lockquake %s, %s", len(r.Rows),
				r.Provider, cmp.Or(r.Host["cores"], "unknown"), r.Seed, r.Version, r.Started),
		},
		Tables:  []sheet.Table{{Heads: t[:2], Rows: t[2:], Below: r.Left()}},
		Notes:   r.legend(),
		Command: r.Command,
	}
}

// Markdown writes the table as Markdown.
func (r Result) Markdown(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s\n%s\n\n`%s`\n", figure.Table(r.table()).Markdown(),
		strings.Join(append(r.Left(), r.legend()...), "\n"), r.Command)
	return err
}
