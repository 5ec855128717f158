// Soak runs each story and twin, each lock without faults, each fault on each backend and the family
// jepsen-etcd-lock, each as often as its row says. It writes docs/track-record.md, and the page's data beside it.
// Start it at the top of the tree. It appends each run to .soak/record.jsonl, outside git, and resumes from that file
// after an interruption.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lockquake/lockquake/internal/longrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := soak(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

const pageFile = "docs/track-record.md"

// soak reads the flags and does what they ask for.
func soak(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	only := flags.String("only", "", "run the rows whose scenario or id (as -list prints it) matches this pattern, or one of several, comma-separated")
	quick := flags.Bool("quick", false, "run each story and twin, each fault on each backend, and four members of the family; each once, with containers")
	runs := flags.Int("runs", 0, "bring each row to this many runs; 0: the row's own number")
	page := flags.Bool("page", false, "write the page from the runs made so far, and run nothing")
	list := flags.Bool("list", false, "print the rows and their progress, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rows, err := choose(allRows(), *only, *quick, *runs)
	if err != nil {
		return err
	}
	rec, err := openRecord(".soak/record.jsonl")
	if err != nil {
		return err
	}
	defer rec.file.Close()
	switch {
	case *list:
		for _, row := range rows {
			fmt.Printf("%-44s %2d of %2d runs done\n", row.ID, len(rec.runs[row.ID]), row.Count)
		}
		return nil
	case *page:
		return writePage(rec, pageFile)
	}
	r := runner{bin: longrun.Program, tell: os.Stderr}
	if r.commit, err = longrun.Build(ctx, r.tell); err != nil {
		return err
	}
	defer r.end()
	for _, row := range rows {
		if err := r.bring(ctx, row, rec); err != nil {
			return err
		}
	}
	if err := writePage(rec, pageFile); err != nil {
		return err
	}
	return verdict(rows, rec)
}

// verdict returns an error unless every row has its runs, all passed, and the demands on the family are met. A row
// that this machine cannot run is an error only if every machine should be able to.
func verdict(rows []Row, rec *record) error {
	var wrong []string
	rates := false
	for _, row := range rows {
		rates = rates || row.rated()
		runs, why := rec.runs[row.ID], rec.missing[row.ID]
		if len(runs) < row.Count && (why == "" || !row.optional()) {
			wrong = append(wrong, fmt.Sprintf("%s has %d of %d runs %s", row.ID, len(runs), row.Count, why))
		}
		for _, run := range runs {
			if run.Verdict != passed {
				wrong = append(wrong, fmt.Sprintf("%s: %s (%s)", row.ID, run.Verdict, run.Dir))
			}
		}
	}
	if answers, met := demands(rec); rates && !met {
		wrong = append(wrong, answers)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}
