// Package terminal formats texts for terminals: folded at some width, and in colours if requested.
package terminal

import (
	"strings"

	"github.com/lockquake/lockquake/results"
)

// usualWidth is the default number of columns of a text; only paths and commands may be longer.
const usualWidth = 100

// Option changes the style of a text.
type Option func(*Style)

// Style is the style of a text.
type Style struct {
	Whole  bool // all counts, latencies, receipts and versions
	escape string
	width  int
	told   bool // the width was set
}

// Width sets the number of columns.
func Width(columns int) Option { return func(s *Style) { s.width, s.told = columns, true } }

// Whole includes all counts, latencies, receipts and versions. Without it a passing run has 15 lines, including those
// of its report and its directory.
func Whole() Option { return func(s *Style) { s.Whole = true } }

// Colour marks verdicts with the colour codes of terminals; without it the text is plain. The codes begin with
// escape: the escape character, or the writer's replacement for it.
func Colour(escape string) Option { return func(s *Style) { s.escape = escape } }

// NewStyle returns the style for the options.
func NewStyle(opts []Option) Style {
	s := Style{width: usualWidth}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// Text returns an empty text in that style.
func (s Style) Text() *Text { return &Text{Width: s.width} }

// Verdict formats a verdict in capitals, in its colour if colours are requested.
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

// Amber formats what deserves a look.
func (s Style) Amber(text string) string { return s.paint(amber, text) }

// paint formats text in bold and in a colour, if colours are requested.
func (s Style) paint(code, text string) string {
	if s.escape == "" {
		return text
	}
	return s.escape + "[1;" + code + "m" + text + s.escape + "[0m"
}
