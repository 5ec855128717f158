package scenarios

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Error is something wrong in a scenario: where it is, what it is, and what would be right.
type Error struct {
	File    string // name of the file; "" when the value came from --set
	Line    int    // from 1; 0 when the place is not known
	Column  int    // from 1, in characters
	Set     string // the --set argument that the value came from, or ""
	Path    string // the key, such as "workload.hold" or "chaos.0.at"; "" for the whole file
	Message string // one line
	source  string // the line of the file
}

// maxShown is the length of a line that is still shown, in bytes.
const maxShown = 1000

// Error returns one line that says it all, and below it, for a file, the line in question with a caret.
func (e *Error) Error() string {
	where := e.File
	switch {
	case e.Set != "":
		where = "--set " + e.Set
	case e.Line > 0:
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	message := e.Message
	if e.Path != "" {
		message = e.Path + ": " + message
	}
	if e.Set != "" || e.Line == 0 || e.source == "" {
		return where + ": " + message
	}
	if len(e.source) > maxShown {
		return where + ": " + message // it would fill the screen
	}
	number := fmt.Sprintf("%4d", e.Line)
	return fmt.Sprintf("%s: %s\n%s | %s\n%s | %s^", where, message, number, e.source,
		strings.Repeat(" ", len(number)), indent(e.source, e.Column-1))
}

// indent returns white space as wide as the first n characters of line.
func indent(line string, n int) string {
	var b strings.Builder
	for _, r := range line {
		if n <= 0 {
			break
		}
		n--
		if r == '\t' {
			b.WriteRune('\t')
		} else {
			b.WriteByte(' ')
		}
	}
	b.WriteString(strings.Repeat(" ", max(n, 0)))
	return b.String()
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

// at makes the error about the value or key that tok begins.
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

// instead says what could be written in place of an unknown word: the closest one, if any is close, and all of them.
func instead(word string, valid []string) string {
	if best := closest(word, valid, 1); len(best) == 1 {
		return fmt.Sprintf("did you mean %q? valid: %s", best[0], strings.Join(valid, ", "))
	}
	return "valid: " + strings.Join(valid, ", ")
}

// closest returns up to n of the candidates that are near to word, the nearest first.
func closest(word string, candidates []string, n int) []string {
	limit := max(2, len(word)/3)
	var out []string
	for distance := 0; distance <= limit && len(out) < n; distance++ {
		for _, c := range candidates {
			if edits(word, c) == distance && len(out) < n {
				out = append(out, c)
			}
		}
	}
	return out
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}
