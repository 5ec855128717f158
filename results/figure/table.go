package figure

import (
	"strings"
	"text/tabwriter"
)

// Table is rows of cells; the first row is the header. Package sheet makes it a page of HTML.
type Table [][]string

// Text formats the rows for a terminal: columns two spaces apart, aligned to the left. A header that ends in blank
// cells, such as the heading of a group, does not widen its column.
func (t Table) Text() string { return t.aligned(0) }

// TextRight is Text with columns aligned to the right, as for figures.
func (t Table) TextRight() string { return t.aligned(tabwriter.AlignRight) }

func (t Table) aligned(flags uint) string {
	var cells, out strings.Builder
	w := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', flags)
	for i, row := range t {
		line := strings.Join(row, "\t") + "\t"
		if i == 0 && strings.HasSuffix(line, "\t\t") {
			line = strings.TrimRight(line, "\t")
		}
		_, _ = w.Write([]byte(line + "\n")) // neither it nor the builder below can fail
	}
	_ = w.Flush()
	for line := range strings.Lines(cells.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// Markdown formats the table as Markdown. Cell escapes a text for it.
func (t Table) Markdown() string {
	var b strings.Builder
	for i, row := range t {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Cell escapes text so that it neither ends a cell of Markdown nor begins markup.
func Cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`, "`", "'").Replace(s)
}
