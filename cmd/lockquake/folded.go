package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/lockquake/lockquake/results/report"
)

// terminalWidth is the width of the terminal that w prints on; 0 where there is none.
func terminalWidth(w io.Writer) int {
	p, ok := w.(*printed)
	if !ok || p.terminal() == nil {
		return 0
	}
	n, _, err := cwriter.GetSize(int(p.terminal().Fd()))
	if err != nil {
		return 0
	}
	return n
}

// folded prints text that fits into the terminal, where there is one.
func folded(w io.Writer, write func(w io.Writer) error) error {
	n := terminalWidth(w)
	if n == 0 {
		return write(w)
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return report.Fold(w, text.String(), report.Width(n))
}

// broken is where a paragraph goes on in the next line.
var broken = regexp.MustCompile(`(\S)\n(\w)`)

// foldedHelp prints the help of a verb. In a terminal its paragraphs are filled anew. Examples are there to be copied, and are not folded.
func foldedHelp(w io.Writer, usual func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(c *cobra.Command, args []string) {
		var plain bytes.Buffer
		c.SetOut(&plain)
		usual(c, args)
		c.SetOut(nil) // back to that of the root
		text := plain.String()
		if terminalWidth(w) > 0 {
			text = strings.Replace(text, c.Long, broken.ReplaceAllString(c.Long, "$1 $2"), 1)
		}
		before, after, ok := strings.Cut(text, c.Example)
		if !ok || c.Example == "" {
			before, after = text, ""
		}
		for i, part := range []string{before, c.Example, after} {
			write := func(w io.Writer) error {
				_, err := io.WriteString(w, part)
				return err
			}
			if i == 1 {
				_ = write(w) // what cannot be printed cannot be complained of either
			} else {
				_ = folded(w, write)
			}
		}
	}
}
