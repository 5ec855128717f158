// Package caret shows a place in a text file as errors do: the place and what is wrong there, and below it the line
// with a caret.
package caret

import (
	"fmt"
	"strings"
)

// maxShown is the length of a line that is still shown, in bytes.
const maxShown = 1000

// Text is what is wrong at a line and column of a file, both from 1 and columns in characters, with that line below.
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
