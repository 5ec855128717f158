package checkers

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// benchHolds is how many holds BenchmarkExclusion10M judges; smaller numbers are for work on the benchmark itself.
var benchHolds = flag.Int("holds", 10_000_000, "holds that BenchmarkExclusion10M judges")

// benchEvents is how many events the longest history of BenchmarkLength has.
var benchEvents = flag.Int("events", 10_000_000, "events of the longest history of BenchmarkLength: 100000000 takes 6.4 GB of disk")

const (
	benchClients = 8
	benchUsers   = 25 // of each client
	benchLocks   = 50
)

// BenchmarkExclusion10M compares the exclusion checker, reading a history from disk, with sorting the ends of the
// same holds in memory. It takes 2.6 GB of temporary disk for 10 million holds, and runs once whatever -benchtime
// says.
func BenchmarkExclusion10M(b *testing.B) {
	n := *benchHolds
	dir := b.TempDir()
	start := time.Now()
	written := writeBenchHistory(b, dir, n)
	b.Logf("n=%d holds, %d events in %d files written in %v; GOMAXPROCS=%d", n, written, benchClients, time.Since(start).Round(time.Millisecond), runtime.GOMAXPROCS(0))

	sorting := sortInMemory(b, dir, n)
	runtime.GC()

	b.ResetTimer()
	heap, spent := watchHeap(), processorTime(b)
	start = time.Now()
	judged, f := judgeFromDisk(b, dir)
	judging, used := time.Since(start), processorTime(b)-spent
	peak := heap()
	b.StopTimer()

	if judged != n || *f.Counts["double_grants"] != 1 || *f.Counts["overlapping_holds"] != 0 {
		b.Fatalf("judged %d holds of %d, found %d double grants (1 was planted) and %d overlapping holds",
			judged, n, *f.Counts["double_grants"], *f.Counts["overlapping_holds"])
	}
	ratio := judging.Seconds() / sorting.Seconds()
	b.ReportMetric(ratio, "x-sorting")
	b.ReportMetric(float64(judging.Nanoseconds())/float64(n), "ns/hold")
	b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/hold")
	b.ReportMetric(float64(peak)/(1<<20), "peak-heap-MiB")
	b.Logf("sorting %d ends in memory %v; judging from disk %v; ratio %.2f; peak heap while judging %.1f MiB",
		2*n, sorting.Round(time.Millisecond), judging.Round(time.Millisecond), ratio, float64(peak)/(1<<20))
}

// BenchmarkLength prints whether a long history costs as much per event as a short one: to write, to judge from disk,
// and in bytes. Short ones are made several times, and the median counts.
func BenchmarkLength(b *testing.B) {
	for n := 100_000; n <= *benchEvents; n *= 10 {
		var writing, judging []float64
		var bytes int64
		for range max(1, min(9, 30_000_000/n)) {
			dir := b.TempDir()
			start := time.Now()
			events := writeBenchHistory(b, dir, n/4)
			writing = append(writing, float64(events)/time.Since(start).Seconds())
			start = time.Now()
			if judged, _ := judgeFromDisk(b, dir); judged != n/4 {
				b.Fatalf("judged %d holds of %d", judged, n/4)
			}
			judging = append(judging, float64(events)/time.Since(start).Seconds())
			bytes = bytesIn(b, dir)
			if err := os.RemoveAll(dir); err != nil {
				b.Fatal(err)
			}
		}
		slices.Sort(writing)
		slices.Sort(judging)
		b.Logf("%10d events, %d times: written %.0f events/s (%.0f to %.0f), judged %.0f (%.0f to %.0f), %.2f bytes an event", n, len(writing),
			writing[len(writing)/2], writing[0], writing[len(writing)-1], judging[len(judging)/2], judging[0], judging[len(judging)-1], float64(bytes)/float64(n))
	}
}

func bytesIn(b *testing.B, dir string) (n int64) {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, history.Pattern))
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			b.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// writeBenchHistory writes a run of users that queue for locks. Each lock is handed from one user to the next, the
// grants of all locks interleave, and each hold has four events. One hold overlaps another.
func writeBenchHistory(b *testing.B, dir string, n int) (events int64) {
	b.Helper()
	locks := make([]string, benchLocks)
	for i := range locks {
		locks[i] = fmt.Sprintf("lock-%d", i)
	}
	ws := make([]*history.Writer, benchClients)
	for i := range ws {
		w, err := history.Create(filepath.Join(dir, fmt.Sprintf("client-%d.lqh", i+1)), history.Header{Process: history.ClientName(i), Locks: locks})
		if err != nil {
			b.Fatal(err)
		}
		ws[i] = w
	}
	q := newBenchQueue(n)
	seqs := make([]uint32, benchClients)
	ops := map[history.User][2]uint32{} // Op of the latest acquire and release
	for e, ok := q.next(); ok; e, ok = q.next() {
		c := e.User.Client()
		seqs[c]++
		e.Seq = seqs[c]
		op := ops[e.User]
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Invoke:
			op[0] = e.Seq
		case e.Kind == history.Release && e.Phase == history.Invoke:
			op[1] = e.Seq
		}
		ops[e.User] = op
		e.Op, e.Grant = op[0], op[0]
		if e.Kind == history.Release {
			e.Op = op[1]
		}
		if err := ws[c].Append(&e); err != nil {
			b.Fatal(err)
		}
		events++
	}
	for _, w := range ws {
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return events
}

// sortInMemory loads the two ends of every hold and returns how long sorting them takes.
func sortInMemory(b *testing.B, dir string, n int) time.Duration {
	b.Helper()
	type end struct {
		time  int64
		user  history.User
		lock  uint16
		begin bool
	}
	ends := make([]end, 0, 2*n)
	paths, err := filepath.Glob(filepath.Join(dir, history.Pattern))
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range paths { // client by client, as they lie on disk
		r, err := history.Open(p)
		if err != nil {
			b.Fatal(err)
		}
		var e history.Event
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
			begin, over := e.Kind == history.Acquire && e.Phase == history.Ok, e.Kind == history.Release && e.Phase == history.Invoke
			if begin || over {
				ends = append(ends, end{e.Time, e.User, e.Lock, begin})
			}
		}
		if !errors.Is(err, io.EOF) || r.Close() != nil {
			b.Fatal(err)
		}
	}
	if len(ends) != 2*n {
		b.Fatalf("%d ends of %d holds", len(ends), n)
	}
	start := time.Now()
	slices.SortFunc(ends, func(x, y end) int {
		switch {
		case x.time < y.time:
			return -1
		case x.time > y.time:
			return 1
		}
		return 0
	})
	return time.Since(start)
}

func judgeFromDisk(b *testing.B, dir string) (judged int, f results.Finding) {
	b.Helper()
	m, err := history.OpenAll(dir)
	if err != nil {
		b.Fatal(err)
	}
	run := results.Run{Locks: m.Locks(), Processes: m.Processes(), TTL: 10e9}
	x := followed(run, newExclusion(run))
	var e history.Event
	for {
		if _, err = m.Next(&e); err != nil {
			break
		}
		if e.Kind == history.Acquire && e.Phase == history.Ok {
			judged++
		}
		x.Observe(&e)
	}
	if !errors.Is(err, io.EOF) || m.Close() != nil {
		b.Fatal(err)
	}
	return judged, x.Finish()
}

// watchHeap samples the live heap until the returned function is called, which returns the maximum.
func watchHeap() (stop func() uint64) {
	const live = "/memory/classes/heap/objects:bytes"
	var peak atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		s := []metrics.Sample{{Name: live}}
		for {
			metrics.Read(s)
			peak.Store(max(peak.Load(), s[0].Value.Uint64()))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { close(done); <-ended; return peak.Load() }
}

// BenchmarkEveryChecker judges the history of BenchmarkExclusion10M with all checkers. It prints the time, the
// processor time, and the peak heap, and runs once whatever -benchtime says.
func BenchmarkEveryChecker(b *testing.B) {
	n := *benchHolds
	dir := b.TempDir()
	writeBenchHistory(b, dir, n)
	m, err := history.OpenAll(dir)
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	b.ResetTimer()
	heap, start, spent := watchHeap(), time.Now(), processorTime(b)
	runner := results.NewCheckerRunner(All(), results.Run{Locks: m.Locks(), Processes: m.Processes(), TTL: 10e9, Token: TokenNone})
	events, from := make([]history.Event, 1024), make([]*history.Header, 1024)
	for err == nil {
		i := 0
		for ; i < len(events); i++ {
			if from[i], err = m.Next(&events[i]); err != nil {
				break
			}
		}
		runner.Observe(events[:i], from[:i])
	}
	if !errors.Is(err, io.EOF) || m.Close() != nil {
		b.Fatal(err)
	}
	findings, _ := runner.Finish()
	judging, used, peak := time.Since(start), processorTime(b)-spent, heap()
	if found := *findings[0].Counts["double_grants"]; found != 1 {
		b.Fatalf("%d double grants, and 1 was planted", found)
	}
	b.ReportMetric(float64(judging.Nanoseconds())/float64(n), "ns/hold")
	b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/hold")
	b.ReportMetric(float64(peak)/(1<<20), "peak-heap-MiB")
}

// processorTime returns the processor time of this process so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
