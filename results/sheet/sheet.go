// Package sheet writes pages of tables and lines, in the style of the report, for comparisons of locks, runs or
// sweeps.
package sheet

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"

	"github.com/lockquake/lockquake/results/page"
)

//go:embed sheet.html.tmpl
var pageText string

var pageTemplate = template.Must(page.Template("sheet").Parse(pageText))

// Page is a page in one file. Empty parts are left out.
type Page struct {
	Title   string
	Answers []string // the answers, which come first
	Head    []string // what was compared, where and when
	Tables  []Table
	Notes   []string // how to read it
	Command string   // that makes it again
}

// Table is rows after header rows; the first cell of a row is its name.
type Table struct {
	Title string
	Heads [][]string
	Rows  [][]string
	Below []string // its explanations
}

// HTML writes the page.
func (p Page) HTML(w io.Writer) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, struct {
		Page
		CSS template.CSS
	}{p, page.CSS()}); err != nil {
		return fmt.Errorf("page %s: %w", p.Title, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}
