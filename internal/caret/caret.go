// Package caret formats errors in text files: the place and what is wrong, and below them the line with a caret.
package caret

import (
	"fmt"
	"strings"
)

// maxShown is the length of the longest line that is shown, in bytes.
const maxShown = 1000

// Text returns the message for a line and column of a file, with that line below. Both count from 1; columns are in
// characters.
func Text(file string, line, column int, message, source string) string {
	message = fmt.Sprintf("%s:%d:%d: %s", file, line, column, message)
	if source == "" || len(source) > maxShown { // it would fill the screen
		return message
	}
	number := fmt.Sprintf("%4d", line)
	return fmt.Sprintf("%s\n%s | %s\n%s | %s^", message, number, source, strings.Repeat(" ", len(number)),
		indent(source, column-1))
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
