package picture

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/results/report/story"
)

// TestLayoutKeepsItsDistances: rows never overlap, and times lie between the rows around them.
func TestLayoutKeepsItsDistances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &story.Story{Lanes: story.Lanes{{Name: "a"}, {Name: "s", Kind: story.LaneService}, {Name: "b"}}}
		const ms = int64(1_000_000)
		now := int64(5_000_000_000_000)
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			now += rapid.SampledFrom([]int64{0, 1, 999, ms, 99 * ms, 100 * ms, 5000 * ms}).Draw(t, "gap")
			s.Marks = append(s.Marks, story.Mark{Time: now, Below: rapid.SampledFrom([]string{"", "second"}).Draw(t, "below")})
		}
		l := place(s)
		for i := 1; i < len(l.Rows); i++ {
			a, b := l.Rows[i-1], l.Rows[i]
			if least := rowGap - 0.001; b.Y-a.Y < least || a.Below != "" && b.Y-a.Y < least+secondRow {
				t.Fatalf("rows %d and %d are %g apart", i-1, i, b.Y-a.Y)
			}
			if b.Time-a.Time < 2 {
				continue
			}
			if mid := l.at(a.Time + (b.Time-a.Time)/2); mid < a.Y || mid > b.Y {
				t.Fatalf("a time between %d and %d lies at %g", a.Time, b.Time, mid)
			}
		}
		if last := l.Rows[len(l.Rows)-1].Y; last >= l.Bottom || l.Bottom >= l.H {
			t.Fatalf("rows end at %g, lanes at %g, the picture at %g", last, l.Bottom, l.H)
		}
	})
}
