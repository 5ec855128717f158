// Package sheet writes pages of tables and lines, in the style of the report: for what puts locks, runs or sweeps side
// by side.
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

// Page is a page in one file. What is empty is left out.
type Page struct {
	Title   string
	Answers []string // what the page is read for, first of all
	Head    []string // what was compared, where and when
	Tables  []Table
	Notes   []string // how to read it
	Command string   // that makes it again
}

// Table is rows behind those of heads; the first cell of a row is its name.
type Table struct {
	Title string
	Heads [][]string
	Rows  [][]string
	Below []string // what belongs to it
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
