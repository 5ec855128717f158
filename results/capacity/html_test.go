package capacity

import (
	"bytes"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
)

var drawing = regexp.MustCompile(`(?s)<svg.*?</svg>`)

func pageOf(t *testing.T, s Sweep) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, Analyse(s)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageOfTheInventedSweep(t *testing.T) {
	page := pageOf(t, invented())
	style := regexp.MustCompile(`(?s)<style>.*?</style>`)
	golden(t, "invented.html", []byte(style.ReplaceAllString(drawing.ReplaceAllString(page, "<svg/>"), "<style/>")))
	charts := drawing.FindAllString(page, -1)
	if len(charts) != 8 { // two of all curves, the best of two over their locks, and one for each loop of each curve
		t.Errorf("%d charts", len(charts))
	}
	for i, c := range charts {
		d := xml.NewDecoder(strings.NewReader(c))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("chart %d: %v", i, err)
			}
		}
		if odd := regexp.MustCompile(`NaN|Inf`).FindString(c); odd != "" {
			t.Errorf("chart %d has %s", i, odd)
		}
		if fixed := regexp.MustCompile(`#[0-9A-F]{6}`).FindString(c); fixed != "" && fixed != "#000000" {
			t.Errorf("chart %d has the colour %s, which does not follow light and dark", i, fixed)
		}
	}
	for _, n := range []string{"0", "1", "2"} { // three curves on the same axes
		if !strings.Contains(charts[0], "var(--s"+n+")") || !strings.Contains(charts[1], "var(--s"+n+")") {
			t.Errorf("series %s is not in the first two charts", n)
		}
	}
	if got := regexp.MustCompile(`(src|href)=|url\(|@import|<script`).FindString(page); got != "" {
		t.Errorf("the page refers to something else: %s", got)
	}
}

// Names in a sweep come from a foreign file: they stay text.
func TestPageEscapes(t *testing.T) {
	s := invented()
	s.Scenario, s.Command = `<script>alert(1)</script>`, `<b>`
	for i := range s.Points {
		s.Points[i].Backend = `<img src=x>`
		s.Points[i].Samples[0].Spoilt = `<i>why</i>`
	}
	if page := pageOf(t, s); strings.Contains(page, "<script") || strings.Contains(page, "<img") || strings.Contains(page, "<b>") || strings.Contains(page, "<i>") {
		t.Error("a name became a tag")
	}
}

func TestPageOfAnEmptySweep(t *testing.T) {
	page := pageOf(t, Sweep{Schema: Schema})
	if !strings.Contains(page, "Nothing was measured") || strings.Contains(page, "<svg") {
		t.Error(page)
	}
}

// Many curves take several charts, so that no two of one chart look alike.
func TestManyCurves(t *testing.T) {
	s := Sweep{Schema: Schema}
	for locks := 1; locks <= 9; locks++ {
		for users := 1; users <= 2; users++ {
			s.Points = append(s.Points, Point{Setting: Setting{Backend: "etcd", Users: users, Locks: locks}, Samples: []Sample{calm()}})
		}
	}
	if n := strings.Count(pageOf(t, s), "<h3>Throughput over users</h3>"); n != 2 {
		t.Errorf("%d charts of throughput", n)
	}
}
