package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/lockquake/lockquake/results/terminal"
)

// Format is the --format flag of a verb.
type Format struct {
	Value string
	known []string
}

// AddFormat adds --format with the given values; the first is the default.
func AddFormat(c *cobra.Command, known ...string) *Format {
	f := &Format{Value: known[0], known: known}
	c.Flags().StringVar(&f.Value, "format", known[0], "write to standard output: "+
		strings.Join(known, " or "))
	// The flag was added on the line before, so this cannot fail.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// Check rejects a format that the verb does not have.
func (f *Format) Check() error {
	if !slices.Contains(f.known, f.Value) {
		return Usagef("--format: there is no format %q; there are %s", f.Value, strings.Join(f.known, ", "))
	}
	return nil
}

// WriteJSON writes v as indented JSON and a newline.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printed is standard output or error for people; everything that verbs print passes through it. Names and messages
// come from run directories that others made. So control characters, and marks that change the direction of text, are
// printed as escapes such as \u001b. In JSON that is the same string.
type printed struct {
	w    io.Writer
	rest []byte // the beginning of a character that the next Write completes
	// Escape stands for the escape character when a verb colours a word. It is random, so that no text can contain
	// it.
	Escape string
}

// NewPrinted returns a printed on w.
func NewPrinted(w io.Writer) *printed { return &printed{w: w, Escape: rand.Text()} }

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
	if _, err := p.w.Write(bytes.ReplaceAll(escaped(text[:whole]), []byte(p.Escape), []byte("\x1b"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// terminal returns the terminal that it prints on; nil if there is none.
func (p *printed) terminal() *os.File {
	if f, ok := p.w.(*os.File); ok && cwriter.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// escaped returns text without anything that a terminal would interpret.
func escaped(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		if c := text[0]; c >= ' ' && c <= '~' { // the common case
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

// terminalWidth returns the width of the terminal that w prints on; 0 if there is none.
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

// PrintFolded prints text, folded to the width of the terminal if there is one.
func PrintFolded(w io.Writer, text string) error {
	if n := terminalWidth(w); n > 0 {
		return terminal.Fold(w, text, terminal.Width(n))
	}
	_, err := io.WriteString(w, text)
	return err
}

// Folded folds what write writes, as PrintFolded does.
func Folded(w io.Writer, write func(w io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return PrintFolded(w, text.String())
}

// broken matches a line break within a paragraph.
var broken = regexp.MustCompile(`(\S)\n(\w)`)

// FoldedHelp prints the help of a verb. In a terminal it refills the paragraphs, but not the examples, which are
// meant to be copied.
func FoldedHelp(w io.Writer, usual func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(c *cobra.Command, args []string) {
		var plain bytes.Buffer
		c.SetOut(&plain)
		usual(c, args)
		c.SetOut(nil) // back to the root's
		text := plain.String()
		if terminalWidth(w) > 0 {
			text = strings.Replace(text, c.Long, broken.ReplaceAllString(c.Long, "$1 $2"), 1)
		}
		before, after, ok := strings.Cut(text, c.Example)
		if !ok || c.Example == "" {
			before, after = text, ""
		}
		_ = PrintFolded(w, before) // a failed print cannot be reported either
		if ok && c.Example != "" {
			_, _ = io.WriteString(w, c.Example)
		}
		_ = PrintFolded(w, after)
	}
}

// OneLine returns text with each run of white space replaced by one space.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// InOneLine returns an error's text in one line, for a cell of a table.
func InOneLine(err error) string { return OneLine(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// Manner returns the options for a terminal: folded at its width and coloured, unless colours are switched off in the
// usual ways.
func Manner(w io.Writer, whole bool) []terminal.Option {
	var out []terminal.Option
	if whole {
		out = append(out, terminal.Whole())
	}
	p, ok := w.(*printed)
	if !ok || p.terminal() == nil {
		return out
	}
	if os.Getenv("NO_COLOR") == "" {
		out = append(out, terminal.Colour(p.Escape))
	}
	if n := terminalWidth(w); n > 0 {
		out = append(out, terminal.Width(n))
	}
	return out
}
