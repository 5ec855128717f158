package results

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// writeLogs writes one HdrHistogram log for each operation into the run's latency folder: a line for each stretch
// between two moments at which a fault began or ended, in ns, so that any processor of such logs sums up the run.
// started is when the run was started, in RFC 3339; the lines' times are in seconds since the workload was let go.
func (c *latency) writeLogs(dir, started string) error {
	dir = filepath.Join(dir, DirLatency)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for op, name := range opNames {
		b, err := c.log(op, started)
		if err != nil {
			return err
		}
		if err := writeAtomically(filepath.Join(dir, name+".hlog"), b); err != nil {
			return err
		}
	}
	return nil
}

func (c *latency) log(op int, started string) ([]byte, error) {
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	if err := w.OutputLogFormatVersion(); err != nil {
		return nil, err
	}
	if t, err := time.Parse(time.RFC3339Nano, started); err == nil {
		if err := w.OutputStartTime(t.UnixMilli()); err != nil {
			return nil, err
		}
	}
	if err := w.OutputLegend(); err != nil {
		return nil, err
	}
	for _, s := range c.stretches {
		h := s.ops[op]
		if h == nil {
			continue
		}
		until := s.until
		if until == forever {
			until = max(c.run.End, s.from)
		}
		h.SetStartTimeMs((s.from - c.run.Start) / 1e6)
		h.SetEndTimeMs((until - c.run.Start) / 1e6)
		if err := w.OutputIntervalHistogram(h); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// writeAtomically writes a file so that a reader sees the old one or the new one.
func writeAtomically(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Chmod(0o644); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
