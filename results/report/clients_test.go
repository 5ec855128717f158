package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/terminal"
)

// TestJudgedProgramsAreNamed names a single program once, several with their nodes, and marks foreign ones.
func TestJudgedProgramsAreNamed(t *testing.T) {
	t.Parallel()
	own := results.ReportClient{Nodes: []string{"client-1", "client-3"}, Client: results.Client{
		Process: "lockquake client", Software: "a9cc773",
		Libraries: map[string]string{"github.com/redis/go-redis/v9": "v9.23.0", "go.etcd.io/etcd/client/v3": "v3.7.3", "github.com/redis/rueidis/rueidislock": "v1"},
	}}
	foreign := results.ReportClient{Nodes: []string{"client-2"}, Client: results.Client{Process: "kazoo-locks", Libraries: map[string]string{"kazoo": "2.10"}, Foreign: true}}
	const told = "lockquake client a9cc773 (go-redis 9.23.0, rueidis/rueidislock 1, etcd/client 3.7.3)"
	const stranger = "kazoo-locks (kazoo 2.10), not lockquake's own: it implements the requested lock in its own way"
	for _, c := range []struct {
		r    results.Report
		want []string
	}{
		{results.Report{}, nil},
		{results.Report{Clients: []results.ReportClient{own}}, []string{told}},
		{results.Report{Clients: []results.ReportClient{own}, Program: "/opt/wrapper"}, []string{told + ", run from /opt/wrapper"}},
		{results.Report{Clients: []results.ReportClient{own, foreign}}, []string{"client-1, client-3: " + told, "client-2: " + stranger}},
	} {
		if got := clientLines(c.r); !slices.Equal(got, c.want) {
			t.Errorf("it says\n%q\nshould say\n%q", got, c.want)
		}
	}
}

// TestTheTextSaysWhoWasJudged also covers the page, which has the same lines.
func TestTheTextSaysWhoWasJudged(t *testing.T) {
	t.Parallel()
	r := results.Report{Clients: []results.ReportClient{{Client: results.Client{Process: "lockquake client", Software: "a9cc773"}}}}
	var b strings.Builder
	if err := Text(&b, r, terminal.Whole()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\nclient  lockquake client a9cc773\n") {
		t.Errorf("it does not say who was judged:\n%s", b.String())
	}
}
