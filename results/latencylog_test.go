package results

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// TestALatencyLogIsReadWhole: reading yields all intervals, or an error that names the file.
func TestALatencyLogIsReadWhole(t *testing.T) {
	var text bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&text)
	for n := range int64(3) {
		h := hdrhistogram.New(1, 1000, 3)
		h.SetStartTimeMs(n)
		h.SetEndTimeMs(n + 1)
		if err := errors.Join(h.RecordValues(7, n+1), w.OutputIntervalHistogram(h)); err != nil {
			t.Fatal(err)
		}
	}
	path, values := filepath.Join(t.TempDir(), "acquire.hlog"), int64(0)
	take := func(h *hdrhistogram.Histogram) { values += h.TotalCount() }
	if err := EachInterval(path, take); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := EachInterval(path, take); err != nil || values != 1+2+3 {
		t.Errorf("%d values, %v", values, err)
	}
	if err := os.WriteFile(path, []byte("0.000,1.000,7.000,no histogram\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := EachInterval(path, take); err == nil {
		t.Error("what is no histogram was read")
	}
}
