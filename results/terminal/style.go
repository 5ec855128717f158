// Package terminal writes texts for terminals: folded at some width, and in colours where these are asked for.
package terminal

import (
	"strings"

	"github.com/lockquake/lockquake/results"
)

// usualWidth is the number of columns that a text keeps to where it is not told another; only a path or a command may
// be longer.
const usualWidth = 100

// Option changes how text is written.
type Option func(*Style)

// Style is how text is written.
type Style struct {
	Whole  bool // all counts, latencies, receipts and versions
	escape string
	width  int
	told   bool // the width
}

// Width folds at that many columns.
func Width(columns int) Option { return func(s *Style) { s.width, s.told = columns, true } }

// Whole writes all counts, latencies, receipts and versions. Without it a passing run has 15 lines, with those of
// its report and its directory.
func Whole() Option { return func(s *Style) { s.Whole = true } }

// Colour marks verdicts with the colour codes of terminals; without it the text is plain. The codes begin with escape:
// the escape character, or what the writer takes for it.
func Colour(escape string) Option { return func(s *Style) { s.escape = escape } }

// NewStyle returns the style that the options ask for.
func NewStyle(opts []Option) Style {
	s := Style{width: usualWidth}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// Text begins a text in that style.
func (s Style) Text() *Text { return &Text{Width: s.width} }

// Verdict writes a verdict in capitals, in its colour where colours are asked for.
func (s Style) Verdict(v results.Verdict) string {
	code := amber
	switch v {
	case results.Pass, results.Clean:
		code = "32"
	case results.Fail, results.Violated:
		code = "31"
	}
	return s.paint(code, strings.ToUpper(string(v)))
}

// amber is the colour code of what is open, or deserves a look.
const amber = "33"

// Amber writes what deserves a look.
func (s Style) Amber(text string) string { return s.paint(amber, text) }

// paint writes text in bold and in a colour, where colours are asked for.
func (s Style) paint(code, text string) string {
	if s.escape == "" {
		return text
	}
	return s.escape + "[1;" + code + "m" + text + s.escape + "[0m"
}
