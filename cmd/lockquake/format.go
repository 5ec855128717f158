package main

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// format is the --format flag of a verb.
type format struct {
	value string
	known []string
}

// formatFlag adds --format with the given values; the first is the default.
func formatFlag(c *cobra.Command, known ...string) *format {
	f := &format{value: known[0], known: known}
	c.Flags().StringVar(&f.value, "format", known[0], "what is written on standard output: "+strings.Join(known, " or "))
	// The flag was added on the line before: this cannot fail.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *format) check() error {
	if !slices.Contains(f.known, f.value) {
		return usagef("--format: there is no format %q; there are %s", f.value, strings.Join(f.known, ", "))
	}
	return nil
}

// writeJSON writes v as indented JSON and a newline.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
