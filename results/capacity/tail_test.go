package capacity

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A quantile comes from the acquires of all samples together, and from cycles if an older file does not count
// acquires.
func TestTailsNeedAcquires(t *testing.T) {
	at := func(acquires int64, cycles float64) Sample {
		return Sample{Acquires: acquires, Cycles: cycles, Latency: spectrum(1)}
	}
	for want, samples := range map[string][]Sample{
		"":                       {at(1, 0)},
		"p50":                    {at(10, 0), at(9, 0)},
		"p50 p90":                {at(199, 0)},
		"p50 p90 p99":            {at(100, 0), at(100, 0)},
		"p50 p90 p99 p999":       {at(0, 6_666), {Spoilt: "cut short", Cycles: 99_999, Latency: spectrum(1)}},
		"p50 p90 p99 p999 p9999": {at(0, 6_667)},
	} {
		r := read(Point{Samples: samples}, 3e9)
		var got []string
		for _, name := range Quantiles {
			if r.Latency[name].N > 0 {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d acquires tell %q, want %q", r.Acquires, got, want)
		}
	}
}

// The report shows the default retry policy of a polling lock, even if an older file has it for the service only. It
// also shows the achieved round trip and what an open loop did not serve.
func TestReportShowsActualSettings(t *testing.T) {
	s := Sweep{Schema: Schema, Measured: int64(10 * time.Second), Service: map[string]string{"lock.retry": "poll every 10ms +/- 50 %"}}
	p := Setting{Backend: "redis", Lock: "set-px-lua", Locks: 1, Retry: "default", RTT: 1e6}
	for _, n := range []int{1, 2} {
		p.Users = n
		one := closed(p, 100)
		one.RTT = ptr(1.0 + float64(n)/10)
		s.Points = append(s.Points, Point{Setting: p, Samples: []Sample{one}})
	}
	p.Rate = 500
	one := open(p, Sample{Cycles: 480, Offered: 500, Unserved: 17})
	one.LateStarts = 321
	s.Points = append(s.Points, Point{Setting: p, Samples: []Sample{one}})
	a := Analyse(s)
	var text, page bytes.Buffer
	if err := Text(&text, a); err != nil {
		t.Fatal(err)
	}
	if err := HTML(&page, a); err != nil {
		t.Fatal(err)
	}
	flat := regexp.MustCompile(`(\s|<[^>]*>)+`)
	for name, got := range map[string]string{"text": text.String(), "page": page.String()} {
		got = flat.ReplaceAllString(strings.ReplaceAll(got, "&#43;", "+"), " ")
		for _, want := range []string{
			"redis set-px-lua, RTT 1.15 ms (1 ms added), retry default (poll every 10ms +/- 50 %):", "retry default: poll every 10ms +/- 50 %",
			"unserved late own lag", " 17 ", " 321 ", "1.10 ms", "1.20 ms",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("the %s has no %q:\n%s", name, want, got)
			}
		}
	}
}

// The report explains the values in brackets.
func TestBrackets(t *testing.T) {
	with := func(counts ...int) Analysis {
		s := Sweep{Schema: Schema}
		for i, n := range counts {
			p := Point{Setting: Setting{Users: i + 1, Locks: 1}}
			for k := range n {
				p.Samples = append(p.Samples, Sample{Cycles: float64(100 + k)})
			}
			s.Points = append(s.Points, p)
		}
		return Analyse(s)
	}
	for want, a := range map[string]Analysis{
		"": with(1, 1),
		"Bounds are the minimum and maximum of the n samples: a 95 % interval needs 6.":                              with(3, 5, 1),
		"Bounds are 95 % intervals of the median.":                                                                   with(6, 7),
		"Bounds are 95 % intervals of the median if n is at least 6, else the minimum and maximum of the n samples.": with(3, 7),
	} {
		if got := a.Brackets(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
