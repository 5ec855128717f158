package sheet

import (
	"strings"
	"testing"
)

// TestPage: every part is on the page as text, in its order. Empty parts leave no heading, and nothing is fetched
// from elsewhere.
func TestPage(t *testing.T) {
	t.Parallel()
	p := Page{
		Title: "A <b> and B", Answers: []string{"PASS  p99=10%"}, Head: []string{"A: 2 runs"},
		Tables: []Table{
			{Title: "etcd", Heads: [][]string{{"figure", "A", "B"}}, Rows: [][]string{{"p50", "1", "<script>"}}, Below: []string{"* too few"}},
			{Rows: [][]string{{"alone", "3"}}},
		},
		Notes: []string{"medians"}, Command: "lockquake compare a -- b",
	}
	var b strings.Builder
	if err := p.HTML(&b); err != nil {
		t.Fatal(err)
	}
	rest := b.String()
	for _, want := range []string{
		"<h1>A &lt;b&gt; and B</h1>", "<strong>PASS  p99=10%</strong>", "A: 2 runs", "<h2>etcd</h2>", `<th scope="col">B</th>`, `<th scope="row">p50</th><td>1</td><td>&lt;script&gt;</td>`,
		"<li>* too few</li>", `aria-label="Table: A &lt;b&gt; and B"`, `<th scope="row">alone</th><td>3</td>`, "How to read this", "<p>medians</p>", "lockquake compare a -- b",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("there is no %s in its place:\n%s", want, b.String())
		}
		rest = after
	}
	for _, bad := range []string{"<script", "src=", "href=", "@import", "url("} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	b.Reset()
	if err := (Page{Title: "nothing"}).HTML(&b); err != nil || strings.Contains(b.String(), "<h2") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
