package terminal

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// Text is text that is folded at some width.
type Text struct {
	bytes.Buffer
	Width int
}

// Paragraph writes wrapped lines; lines after the first are indented by the width of lead.
func (b *Text) Paragraph(lead, text string) {
	indent := len([]rune(lead))
	for _, line := range figure.Wrap(text, max(b.Width-indent, 10)) {
		b.WriteString(lead + line + "\n")
		lead = strings.Repeat(" ", indent)
	}
}

// Indent indents lines by two spaces.
func Indent(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// Glossary writes names, and next to each its meaning. The meanings are folded if the width was set.
func Glossary(w io.Writer, entries [][2]string, opts ...Option) error {
	st, longest := NewStyle(opts), 0
	for _, e := range entries {
		longest = max(longest, len(e[0]))
	}
	b := st.Text()
	for _, e := range entries {
		lead, text := fmt.Sprintf("%-*s  ", longest, e[0]), strings.Join(strings.Fields(e[1]), " ")
		switch {
		case !st.told:
			fmt.Fprintln(b, lead+text)
		case len(lead) > b.Width/2: // the names leave no space
			b.WriteString(e[0] + "\n")
			b.Paragraph("    ", text)
		default:
			b.Paragraph(lead, text)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Fold breaks long lines. Continuation lines start below the last column if that leaves half of the width, else a
// little deeper than the line.
func Fold(w io.Writer, text string, opts ...Option) error {
	b := NewStyle(opts).Text()
	for line := range strings.Lines(text) {
		b.fold(strings.TrimRight(line, "\n"))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// lastColumn matches the part of a table line before its last column.
var lastColumn = regexp.MustCompile(`^.*\S {2,}`)

// fold writes a line. The spaces within stay, so that columns do.
func (b *Text) fold(line string) {
	deep := 2 + len(line) - len(strings.TrimLeft(line, " "))
	if before := len([]rune(lastColumn.FindString(line))); before > 0 && before <= b.Width/2 {
		deep = before
	}
	rest, lead := []rune(line), 0
	for {
		cut := lastSpace(rest, lead, b.Width)
		if len(rest) <= b.Width || cut < 0 {
			b.WriteString(strings.TrimRight(string(rest), " ") + "\n")
			return
		}
		b.WriteString(strings.TrimRight(string(rest[:cut]), " ") + "\n")
		lead = min(deep, b.Width/2)
		rest = []rune(strings.Repeat(" ", lead) + strings.TrimLeft(string(rest[cut:]), " "))
	}
}

// lastSpace returns where a line can be broken: the last space up to the width that is followed by a word, else the
// first one after it; -1: nowhere.
func lastSpace(line []rune, lead, width int) int {
	for lead < len(line) && line[lead] == ' ' {
		lead++
	}
	for i := min(width, len(line)-1); i > lead; i-- {
		if line[i] == ' ' {
			return i
		}
	}
	for i := max(width, lead); i < len(line); i++ {
		if line[i] == ' ' {
			return i
		}
	}
	return -1
}
