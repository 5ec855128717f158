package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/results/terminal"
)

// DrawReport writes the report for people.
func DrawReport(dir string, rep results.Report) error {
	return unlessPanic(dir, func() error { return report.Write(dir, rep) })
}

// DrawPage writes a page into a file.
func DrawPage(file string, html func(io.Writer) error) error {
	var page bytes.Buffer
	if err := unlessPanic(file, func() error { return html(&page) }); err != nil {
		return err
	}
	return results.WriteAtomically(file, page.Bytes())
}

// unlessPanic calls page and turns a panic into an error: the chart library panics at figures that it cannot place.
func unlessPanic(where string, page func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: the report could not be drawn: %v", where, p)
		}
	}()
	return page()
}

// Explain explains in plain words what happened in a run.
func Explain(w io.Writer, dir string, rep results.Report) error {
	var plain bytes.Buffer
	if err := report.Explain(&plain, dir, rep); err != nil {
		return err
	}
	return terminal.Fold(w, "\n"+plain.String(), Manner(w, false)...)
}

// Shorten returns a path relative to the working directory if it lies below it.
func Shorten(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
