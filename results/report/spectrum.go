package report

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/results"
)

// spectrum is the latency (ns) of each operation over the whole run.
type spectrum map[string]*hdrhistogram.Histogram

// readSpectrum adds up the histogram logs that the judge left in a run directory: the chart then shows the same
// samples as the figures. An operation without a log is left out.
func readSpectrum(dir string) (spectrum, error) {
	s := spectrum{}
	for _, op := range results.Operations {
		h := hdrhistogram.New(1, longest, 3)
		err := results.EachInterval(filepath.Join(dir, results.DirLatency, op+".hlog"),
			func(interval *hdrhistogram.Histogram) { h.Merge(interval) })
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("latency log of %s: %w", op, err)
		}
		if h.TotalCount() > 0 {
			s[op] = h
		}
	}
	return s, nil
}
