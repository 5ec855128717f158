package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml/token"

	"github.com/lockquake/lockquake/internal/caret"
)

// Error is a mistake in a scenario: where it is, what it is, and what would be right.
type Error struct {
	File    string // name of the file; "" when the value came from --set
	Line    int    // from 1; 0 when the place is not known
	Column  int    // from 1, in characters
	Set     string // the --set argument that the value came from, or ""
	Path    string // the key, such as "workload.hold" or "chaos.0.at"; "" for the whole file
	Message string // one line
	source  string // the line of the file
}

// Error returns a one-line message. For a file, the offending line with a caret follows.
func (e *Error) Error() string {
	message := e.Message
	if e.Path != "" {
		message = e.Path + ": " + message
	}
	switch {
	case e.Set != "":
		return "--set " + e.Set + ": " + message
	case e.Line > 0:
		return caret.Text(e.File, e.Line, e.Column, message, e.source)
	}
	return e.File + ": " + message
}

// source is the text that nodes came from.
type source struct {
	file  string
	lines []string
	sets  map[*token.Token]string // tokens that came from a --set argument instead
}

func newSource(file string, text []byte) *source {
	return &source{file: file, lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")}
}

// at returns an error about the value or key that starts at tok.
func (s *source) at(tok *token.Token, path, format string, args ...any) *Error {
	e := &Error{File: s.file, Path: path, Message: fmt.Sprintf(format, args...)}
	if tok == nil || tok.Position == nil {
		return e
	}
	if set, ok := s.sets[tok]; ok {
		e.File, e.Set = "", set
		return e
	}
	e.Line, e.Column = tok.Position.Line, tok.Position.Column
	if e.Line >= 1 && e.Line <= len(s.lines) {
		e.source = s.lines[e.Line-1]
		// The parser puts an empty value behind the end of its line; a caret belongs on the line.
		e.Column = max(1, min(e.Column, len([]rune(e.source))+1))
	}
	return e
}

// listed joins names for a message: "a, b or c".
func listed(names []string) string {
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// instead suggests replacements for an unknown word: the closest one, if any is close, and all valid ones.
func instead(word string, valid []string) string {
	if best := Closest(word, valid, 1); len(best) == 1 {
		return fmt.Sprintf("did you mean %q? valid: %s", best[0], strings.Join(valid, ", "))
	}
	return "valid: " + strings.Join(valid, ", ")
}

// Closest returns up to n candidates that are likely misspelt as word, nearest first.
func Closest(word string, candidates []string, n int) []string {
	limit := max(2, len(word)/3)
	return slices.DeleteFunc(nearest(candidates, n, func(c string) int { return levenshtein.ComputeDistance(word, c) }),
		func(c string) bool { return levenshtein.ComputeDistance(word, c) > limit })
}

// nearest returns the n candidates with the smallest distance.
func nearest(candidates []string, n int, far func(string) int) []string {
	out := slices.Clone(candidates)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(far(a), far(b)) })
	return out[:min(n, len(out))]
}
