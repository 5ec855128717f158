package scenarios

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRandomSchedule(t *testing.T) {
	s, err := Parse([]byte(small+`
chaos:
  random: [pause, {use: clock-jump, by: 10s..60s, on: [leader, "etcd-1, etcd-2"], for: 2s}]
  mean_gap: 3s
  spare: majority
`), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []RandomFault{
		{Use: "pause", On: []string{"one"}, For: Span{time.Second, 4 * time.Second}},
		{Use: "clock-jump", On: []string{"leader", "etcd-1, etcd-2"}, For: Span{2 * time.Second, 2 * time.Second}, Timed: true, Aimed: true},
	}
	got := s.Random.Faults
	sameAfterText(t, s)
	params := got[1].Params
	got[1].Params = Params{}
	if !reflect.DeepEqual(got, want) || s.Random.MeanGap != 3*time.Second || s.Overlap != OverlapNever || s.Spare != SpareMajority {
		t.Errorf("%+v, %s %s", s.Random, s.Overlap, s.Spare)
	}
	low, err := params.Settle(func(int64) int64 { return 0 })
	if err != nil || low.String() != "by: 10s" {
		t.Errorf("%s, %v", low, err)
	}
	if params.String() != `by: "10s..60s"` {
		t.Errorf("drawing changed what was read: %s", params)
	}
	var own struct{ By time.Duration }
	if err := low.Decode(&own); err != nil || own.By != 10*time.Second {
		t.Errorf("%+v, %v", own, err)
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct{ in, low, high string }{
		{"1s..4s", "1s", "4s"},
		{"-60s..60s", "-1m0s", "1m0s"},
		{"+10s..+20s", "10s", "20s"},
		{"10us..20us", "10µs", "20µs"},
		{"1..5", "1", "5"},
		{"-5..-1", "-5", "-1"},
		{"0.5..2", "0.500", "2.000"},
		{"-0.5..0.25", "-0.500", "0.250"},
		{"1.05..1.2", "1.050", "1.200"},
		{"5%..50%", "5%", "50%"},
		{"0.1%..2%", "0.100%", "2.000%"},
		{"1mbit..10mbit", "1mbit", "10mbit"},
		{"7..7", "7", "7"},
		{"a..b", "a..b", "a..b"}, // no range: left to the owner of the key
		{"1s", "1s", "1s"},
	} {
		p, err := ParseParams("{x: " + c.in + "}")
		if err != nil {
			t.Fatal(err)
		}
		for want, pick := range map[string]func(int64) int64{
			c.low: func(int64) int64 { return 0 }, c.high: func(last int64) int64 { return last },
		} {
			got, err := p.Settle(pick)
			if text := strings.Trim(strings.TrimPrefix(got.String(), "x: "), `"`); err != nil || text != want {
				t.Errorf("%s: %s, %v; want %s", c.in, got, err, want)
			}
		}
	}
	for in, want := range map[string]string{
		"4s..1s": "before it begins", "5..1": "before it begins", "1s..5": "different units", "1kbit..1mbit": "different units",
		"1..x": "not a range", "1s..": "not a range", "1..99999999999999999999": "too large",
		"-9000000000000000000..9000000000000000000": "too far apart",
	} {
		p, err := ParseParams("{x: " + in + "}")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Settle(func(int64) int64 { return 0 }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// A drawn schedule reads back as written, with and without promises, including comments.
func TestDrawnIsReadAgain(t *testing.T) {
	params, err := ParseParams("{by: 1m23.4s, from: [rest]}")
	if err != nil {
		t.Fatal(err)
	}
	list := []Plain{
		{Use: "pause", On: "etcd-1", At: 1234 * time.Millisecond, For: 61 * time.Second, Note: "one # of\nthem"},
		{Use: "clock-jump", On: "leader(lock-3), client-1", At: 2 * time.Second, Params: params},
		{Use: "restart", On: "holder", At: 3 * time.Second},
	}
	for _, chaos := range []string{
		"chaos: {random: [pause], spare: majority}", "chaos: [{use: pause, on: one}]", "chaos: {random: [pause], overlap: any}",
		"chaos: {overlap: other-nodes, schedule: [{use: pause, on: one}]}",
	} {
		s, err := Parse([]byte(small+"\n"+chaos+"\nrun: {for: 2m, seed: 7}\n"), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		text := s.Drawn("one line\nand another", list)
		d, err := Parse(text, "drawn.yaml")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d.Name != s.Name || d.Overlap != s.Overlap || d.Spare != s.Spare || d.Run != s.Run || d.Random != nil || len(d.Chaos) != len(list) {
			t.Fatalf("%+v\n%s", d, text)
		}
		for i, x := range d.Chaos {
			if p := list[i]; x.Use != p.Use || x.On != p.On || x.At != p.At || x.For != p.For || x.Params.String() != p.Params.String() {
				t.Errorf("%+v was read as %+v\n%s", p, x, text)
			}
		}
	}
}
