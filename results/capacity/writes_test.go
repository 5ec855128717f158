package capacity

import (
	"bytes"
	"strings"
	"testing"
)

// written returns a sweep of a counter: six users without a lock lose most of their writes; with a lock they lose
// none.
func written() Sweep {
	point := func(lock string, users int, writes, lost float64) Point {
		p := Point{Setting: Setting{Backend: "redis", Lock: lock, Nodes: 1, Users: users, Locks: 1}}
		for range 3 {
			p.Samples = append(p.Samples, Sample{Verdict: "pass", Cycles: writes, Cycle: 1e3 * float64(users) / writes, InService: float64(users), Writes: &writes, Lost: &lost})
		}
		return p
	}
	return Sweep{
		Schema: Schema, Scenario: "counting", Repeat: 3, Measured: 1e9,
		Points: []Point{point("none", 1, 180, 0), point("none", 6, 920, 0.83), point("set-px-lua", 1, 140, 0), point("set-px-lua", 6, 148, 0)},
	}
}

// TestLastingWrites: a lock is compared with the error without it by lasting writes, not by all writes.
func TestLastingWrites(t *testing.T) {
	t.Parallel()
	a := Analyse(written())
	var text, page bytes.Buffer
	if err := Text(&text, a); err != nil {
		t.Fatal(err)
	}
	if err := HTML(&page, a); err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{
		"180 writes/s last (1 user; 0 % of the acknowledged ones are lost)", "148 writes/s last (6 users; 0 % of the acknowledged ones are lost)",
		"lasting writes/s lost curve", "180 0 % redis none", "148 0 % redis set-px-lua", "users cycles/s writes/s lost p50", "6 920 920 83 %",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	for _, want := range []string{"Lasting writes over users", `<th scope="col">writes/s</th><th scope="col">lost</th>`, "<td>83 %</td>"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := a.Curves[0].Closed[1].lasting(); got < 156 || got > 157 {
		t.Errorf("920 writes/s of which 83 %% are lost: %g last, want 156.4", got)
	}
	silent := written()
	for i := range silent.Points {
		for j := range silent.Points[i].Samples {
			silent.Points[i].Samples[j].Writes, silent.Points[i].Samples[j].Lost = nil, nil
		}
	}
	text.Reset()
	if err := Text(&text, Analyse(silent)); err != nil || strings.Contains(text.String(), "writes") {
		t.Errorf("error %v; a sweep without writes tells of them:\n%s", err, text.String())
	}
}
