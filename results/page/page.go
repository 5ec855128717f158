// Package page has what all HTML pages of results share: their style, and charts that follow it. A page is one file
// without external references.
package page

import (
	_ "embed"
	"html/template"
)

// chartText draws a Chart.
const chartText = `{{define "chart"}}<figure><h3>{{.Title}}</h3><div class="scroll" tabindex="0" role="region" aria-label="{{.Title}}">{{.SVG}}</div><ul class="legend">{{range .Legend}}<li><span class="{{.Class}}"></span>{{.Name}}</li>{{end}}</ul><figcaption>{{.Caption}}</figcaption></figure>{{end}}`

//go:embed page.css
var pageCSS string

// Template starts a page in the style of the report. Its template "chart" draws a Chart.
func Template(name string) *template.Template {
	return template.Must(template.New(name).Parse(chartText))
}

// CSS returns the style of every page.
func CSS() template.CSS { return template.CSS(pageCSS) }

// Chart is one figure of the page.
type Chart struct {
	Title   string
	Caption string
	Legend  []Entry
	SVG     template.HTML
}

// Entry names a series next to its chart, where it covers no line.
type Entry struct{ Class, Name string }
