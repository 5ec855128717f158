package results

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
)

// EachInterval calls take with the histogram, in ns, of each interval of a latency log.
func EachInterval(path string, take func(h *hdrhistogram.Histogram)) error {
	f, _, err := history.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for log := hdrhistogram.NewHistogramLogReader(f); ; {
		h, err := log.NextIntervalHistogram()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if h == nil {
			return nil
		}
		take(h)
	}
}
