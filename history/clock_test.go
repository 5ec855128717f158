package history

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const us, ms, sec = int64(1e3), int64(1e6), int64(1e9)

func clockOf(t interface{ Fatal(...any) }, list ...Measurement) *Clock {
	c, err := NewClock(list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTheExampleOfAClock checks the example in Clock's comment.
func TestTheExampleOfAClock(t *testing.T) {
	c := clockOf(t, Measurement{At: 10 * sec, OffsetNS: 7 * ms, ErrorNS: 100 * us}, Measurement{At: 12 * sec, OffsetNS: 7200 * us, ErrorNS: 100 * us})
	for _, x := range []struct{ own, offset, err int64 }{
		{10 * sec, 7000 * us, 100 * us},
		{11 * sec, 7100 * us, 500 * us},
		{12 * sec, 7200 * us, 100 * us},
		{14 * sec, 7200 * us, 1100 * us},
		{8 * sec, 7000 * us, 1100 * us},
	} {
		run := c.Run(x.own)
		if run != x.own+x.offset || c.Own(run) != x.own {
			t.Errorf("at %d the offset is %d, want %d; and back it is %d", x.own, run-x.own, x.offset, c.Own(run))
		}
		if got := c.Error(run); got < x.err || got > x.err+2*rounding {
			t.Errorf("at %d the error is %d, want %d", x.own, got, x.err)
		}
	}
	c = clockOf(t, Measurement{At: 10 * sec, OffsetNS: 7 * ms, ErrorNS: 100 * us}, Measurement{At: 12 * sec, OffsetNS: 9 * ms, ErrorNS: 100 * us})
	if s := c.Step(); s == nil || s.At != 12*sec || c.Error(10*sec) != maxError || c.Run(sec) != sec+7*ms {
		t.Errorf("a clock that was set: %+v, and its error is %d", s, c.Error(10*sec))
	}
}

// TestTheWiderSideOfAnErrorCounts: between a wide measurement and a narrow one the offset lies nearer to one end of
// the possible interval.
func TestTheWiderSideOfAnErrorCounts(t *testing.T) {
	first, second := Measurement{OffsetNS: 500 * us, ErrorNS: 500 * us}, Measurement{At: 2 * sec, OffsetNS: 1200 * us, ErrorNS: 200 * us}
	up := clockOf(t, first, second) // at 1 s the offset is 850 us, within the possible 500 to 1500 us
	first.OffsetNS, second.OffsetNS = -first.OffsetNS, -second.OffsetNS
	down := clockOf(t, first, second)
	for _, c := range []*Clock{up, down} {
		if got := c.Error(c.Run(sec)); got < 650*us || got > 650*us+2*rounding {
			t.Errorf("the error is %d, want 650 us", got)
		}
	}
}

// TestAClockThatWentBackWasSet; one that is measured twice at the same moment was not.
func TestAClockThatWentBackWasSet(t *testing.T) {
	if c := clockOf(t, Measurement{At: 6}, Measurement{At: 5}); c.Step() == nil || c.Step().At != 5 {
		t.Errorf("back: %+v", c.Step())
	}
	if c := clockOf(t, Measurement{At: 5}, Measurement{At: 5}, Measurement{At: 6}); c.Step() != nil || c.Run(5) != 5 || c.Own(5) != 5 || c.Error(5) != rounding {
		t.Errorf("twice: %+v", c)
	}
}

// TestALateAnswerDoesNoHarm if other measurements bound the clock more tightly.
func TestALateAnswerDoesNoHarm(t *testing.T) {
	c := clockOf(t,
		Measurement{At: 10 * sec, ErrorNS: 100 * us}, Measurement{At: 12 * sec, OffsetNS: 35 * ms, ErrorNS: 40 * ms}, Measurement{At: 14 * sec, ErrorNS: 100 * us})
	if c.Step() != nil || c.Error(12*sec) > 1100*us+2*rounding {
		t.Errorf("the error is %d", c.Error(12*sec))
	}
	if off := c.Run(12*sec) - 12*sec; off > ms || off < -ms {
		t.Errorf("the offset is %d", off)
	}
}

// trueClock is a clock that keeps the rate bound, in pieces of constant rate.
type trueClock struct{ own, run []int64 }

func drawTrueClock(t *rapid.T) (c trueClock) {
	own := rapid.Int64Range(0, 1000*sec).Draw(t, "own")
	run := rapid.Int64Range(0, 1000*sec).Draw(t, "run")
	for range rapid.IntRange(2, 8).Draw(t, "pieces") {
		c.own, c.run = append(c.own, own), append(c.run, run)
		d := rapid.Int64Range(1, 5*sec).Draw(t, "for")
		ppm := rapid.Int64Range(-499, 499).Draw(t, "ppm")
		own, run = own+d, run+d+d*ppm/1_000_000
	}
	c.own, c.run = append(c.own, own), append(c.run, run)
	return c
}

func (c trueClock) at(own int64) int64 {
	i := 0
	for i < len(c.own)-2 && c.own[i+1] <= own {
		i++
	}
	return c.run[i] + int64(float64(own-c.own[i])*float64(c.run[i+1]-c.run[i])/float64(c.own[i+1]-c.own[i]))
}

// TestAClockErrsByNoMoreThanItSays, whatever the rates between measurements, and it never goes back.
func TestAClockErrsByNoMoreThanItSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		truth := drawTrueClock(rt)
		first, last := truth.own[0], truth.own[len(truth.own)-1]
		at := rapid.Int64Range(first, last)
		var list []Measurement
		for own := at.Draw(rt, "first"); own <= last && len(list) < 6; own += rapid.Int64Range(1, 4*sec).Draw(rt, "then") {
			e := rapid.SampledFrom([]int64{2, 100 * us, 40 * ms}).Draw(rt, "error")
			off := truth.at(own) - own + rapid.Int64Range(-e+2, e-2).Draw(rt, "wrong")
			list = append(list, Measurement{At: own, OffsetNS: off, ErrorNS: e})
		}
		c := clockOf(rt, list...)
		if s := c.Step(); s != nil {
			rt.Fatalf("it was set at %+v: %+v", s, list)
		}
		for range 20 {
			a, b := at.Draw(rt, "a"), at.Draw(rt, "b")
			run := c.Run(a)
			if by := truth.at(a) - run; max(by, -by) > c.Error(run) {
				rt.Fatalf("at %d it errs by %d and says %d: %+v", a, by, c.Error(run), list)
			}
			if (run < c.Run(b)) != (a < b) && run != c.Run(b) {
				rt.Fatalf("%d and %d change places: %+v", a, b, list)
			}
			if own := c.Own(run); own-a > 2 || a-own > 2 {
				rt.Fatalf("%d and back is %d: %+v", a, own, list)
			}
		}
	})
}

func TestMeasurementsThatCannotBeAreRefused(t *testing.T) {
	if _, err := NewClock(nil); err == nil {
		t.Error("none: taken")
	}
	for _, beyond := range []int64{0, 1} { // just within the bound, and just beyond
		for name, m := range map[string]Measurement{
			"time": {At: -beyond}, "far time": {At: maxTime + beyond}, "offset": {OffsetNS: maxTime + beyond}, "offset back": {OffsetNS: -maxTime - beyond},
			"error": {ErrorNS: -beyond}, "wild error": {ErrorNS: maxError + beyond},
		} {
			if _, err := NewClock([]Measurement{m}); (err == nil) != (beyond == 0) {
				t.Errorf("%s, by %d beyond what is possible: %v", name, beyond, err)
			}
		}
	}
}

// TestAHistoryIsReadByItsMeasurements if its folder has some for the process.
func TestAHistoryIsReadByItsMeasurements(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"client-1", "client-2"} {
		h := Header{Process: name, Locks: []string{"lock-0"}, OffsetNS: 5 * ms, ErrorNS: ms}
		es := []Event{
			{Time: 10 * sec, Seq: 1, Op: 1, Kind: Acquire, Phase: Invoke},
			{Time: 11 * sec, Seq: 2, Op: 1, Grant: 1, Kind: Acquire, Phase: Ok, Value: 10 * sec, Valid: 12 * sec},
		}
		writeFile(t, filepath.Join(dir, name+".lqh"), h, es)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, Clocks), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"process":"client-2","at":10000000000,"offset_ns":7000000,"error_ns":100000}
{"process":"agent","at":1,"offset_ns":0,"error_ns":100000}
{"process":"client-2","at":12000000000,"offset_ns":7200000,"error_ns":100000}
`)
	m, err := OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	want := map[string][]Event{
		"client-1": {{Time: 10005 * ms}, {Time: 11005 * ms, Value: 10005 * ms, Valid: 12005 * ms}},
		"client-2": {{Time: 10007 * ms}, {Time: 11*sec + 7100*us, Value: 10007 * ms, Valid: 12*sec + 7200*us}},
	}
	var e Event
	for {
		h, err := m.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		w := want[h.Process][0]
		want[h.Process] = want[h.Process][1:]
		if e.Time != w.Time || e.Value != w.Value || e.Valid != w.Valid {
			t.Errorf("%s: %+v, want %+v", h.Process, e, w)
		}
		if err := h.Error(e.Time); h.Exact() || h.Process == "client-1" && err != ms || h.Process == "client-2" && (err < 100*us || err > 501*us) {
			t.Errorf("%s: the error at %d is %d", h.Process, e.Time, err)
		}
	}
	for name, c := range map[string]struct{ text, says string }{
		"no json":     {"{\n", Clocks + ": line 1"},
		"no second":   {"{}\n{\n", Clocks + ": line 2"},
		"no time":     {`{"process":"a","at":-1}`, Clocks},
		"a long line": {strings.Repeat("x", 1<<17), Clocks},
	} {
		put(c.text)
		if _, err := OpenAll(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %s", name, err, c.says)
		}
	}
}
