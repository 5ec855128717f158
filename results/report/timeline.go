package report

import (
	"errors"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// bucket is the minimum width (ns) of the steps of a time line.
const bucket = 100_000_000

// maxBuckets bounds the steps of a time line; a longer run has wider ones.
const maxBuckets = 400

// longest is the longest latency (ns) that a histogram can hold; a longer one counts as this.
const longest = 3_600_000_000_000

// timeline collects grants and their latencies from the events of a run, in steps of time.
type timeline struct {
	start, width int64
	grants       []float64
	steps        []*hdrhistogram.Histogram // acquire latency by step; nil without grants
	open         map[history.User]int64    // start of the user's acquire
}

func newTimeline(env results.Env) *timeline {
	t := &timeline{start: env.Start, width: bucket, open: map[history.User]int64{}}
	for (env.End-env.Start)/t.width >= maxBuckets {
		t.width += bucket
	}
	n := max(0, (env.End-env.Start+t.width-1)/t.width)
	t.grants = make([]float64, n)
	t.steps = make([]*hdrhistogram.Histogram, n)
	return t
}

func record(h *hdrhistogram.Histogram, ns int64) {
	// The value is clamped to the histogram's range, so it cannot be refused.
	_ = h.RecordValue(min(max(ns, 1), longest))
}

// read takes the events of a run directory.
func (t *timeline) read(dir string, env results.Env) (err error) {
	log, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return log.Each(func(_ string, e *history.Event) { t.observe(e) })
}

// observe takes the next event in the order of time.
func (t *timeline) observe(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		t.open[e.User] = e.Time
		if e.Value != 0 {
			t.open[e.User] = e.Value // open loop: from its intended start
		}
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		t.granted(e)
	}
}

// granted counts one grant and its latency.
func (t *timeline) granted(e *history.Event) {
	since, ok := t.open[e.User]
	if !ok {
		return
	}
	i := (e.Time - t.start) / t.width
	if e.Time < t.start || i >= int64(len(t.grants)) {
		return
	}
	t.grants[i]++
	if t.steps[i] == nil {
		t.steps[i] = hdrhistogram.New(1, longest, 2)
	}
	record(t.steps[i], e.Time-since)
}
