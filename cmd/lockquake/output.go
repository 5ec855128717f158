package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"
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

// printed is standard output or error for people; what verbs print passes through it. Names and messages come from
// run directories that others made. So a control character, or a mark that turns the direction of text around, is
// printed as \u001b. In JSON that is the same string.
type printed struct {
	w    io.Writer
	rest []byte // the beginning of a character that the next Write completes
	// escape stands for the escape character where a verb colours a word. It is drawn, so that no text can hold it.
	escape string
}

func newPrinted(w io.Writer) *printed { return &printed{w: w, escape: rand.Text()} }

// Write prints b.
func (p *printed) Write(b []byte) (int, error) {
	text := slices.Concat(p.rest, b)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if c := text[len(text)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-back:]) {
				whole -= back
			}
			break
		}
	}
	p.rest = bytes.Clone(text[whole:])
	if _, err := p.w.Write(bytes.ReplaceAll(escaped(text[:whole]), []byte(p.escape), []byte("\x1b"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// terminal returns the terminal that it prints on; nil where that is none.
func (p *printed) terminal() *os.File {
	if f, ok := p.w.(*os.File); ok && cwriter.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// escaped is text without anything that a terminal would obey.
func escaped(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if c := text[0]; c >= ' ' && c <= '~' { // most of what is printed
			out, text = append(out, c), text[1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\n' || r == '\t' || strconv.IsGraphic(r):
			out = append(out, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}
