package capacity

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// grid returns curves of etcd with 1 to 4 users, on 1 and 64 locks, near and far, and one of Redis.
func grid() Sweep {
	s := Sweep{Schema: Schema, Objective: &Objective{0.99, int64(20 * time.Millisecond)}}
	for _, of := range []Setting{
		{Backend: "etcd", Locks: 1}, {Backend: "etcd", Locks: 64}, {Backend: "etcd", Locks: 1, RTT: 1e6}, {Backend: "etcd", Locks: 64, RTT: 1e6}, {Backend: "redis", Locks: 1, RTT: 5e6},
	} {
		for _, n := range []int{1, 2, 4} {
			of.Users = n
			one := calm()
			one.Cycles, one.InService, one.Cycle, one.Fsync = float64(100*n), float64(n), 10, nil
			s.Points = append(s.Points, Point{Setting: of, Samples: []Sample{one}})
		}
	}
	s.Points[2].Samples[0].CPU["clients"] = 2 // the generator could do no more
	return s
}

func TestOverview(t *testing.T) {
	rows := Analyse(grid()).overview()
	for i, want := range [][]string{
		{"curve", "best cycles/s", "it bends at", "limit", "rate kept"},
		{"etcd, 1 lock, RTT 0", "at least 200", "no law fits", "number of users", "none confirmed"},
		{"etcd, 64 locks, RTT 0", "at least 400", "no law fits", "number of users", "none confirmed"},
		{"etcd, 1 lock, RTT 1 ms", "at least 400", "no law fits", "per-lock ceiling", "none confirmed"},
		{"etcd, 64 locks, RTT 1 ms", "at least 400", "no law fits", "number of users", "none confirmed"},
		{"redis, 1 lock, RTT 5 ms", "at least 400", "no law fits", "per-lock ceiling", "none confirmed"},
	} {
		if !slices.Equal(rows[i], want) {
			t.Errorf("%q\nwant %q", rows[i], want)
		}
	}
	s := grid()
	s.Points = s.Points[:3]
	if rows := Analyse(s).overview(); rows != nil {
		t.Errorf("one curve: %q", rows)
	}
	s = grid()
	s.Objective = nil
	for _, row := range Analyse(s).overview() {
		if len(row) != 4 {
			t.Errorf("no objective: %q", row)
		}
	}
}

// A line joins curves that differ in one number only: two over the locks, near and far, and two over the distance.
func TestScaling(t *testing.T) {
	charts, err := charts(Analyse(grid()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range charts {
		for _, e := range c.Legend {
			if strings.HasPrefix(c.Title, "Best") {
				got = append(got, c.Title+": "+e.Name)
			}
		}
		if strings.Contains(string(c.SVG), "NaN") {
			t.Errorf("%s has a NaN", c.Title)
		}
	}
	want := []string{
		"Best throughput over locks: etcd", "Best throughput over locks: etcd, RTT 1 ms",
		"Best throughput over RTT: etcd, 1 lock", "Best throughput over RTT: etcd, 64 locks",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
