package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// pictureOf draws the witness of a synthetic run; with LOCKQUAKE_PICTURES set it also keeps the file there.
func pictureOf(t *testing.T, s synthetic) []byte {
	t.Helper()
	w, ok := Choose(s.report)
	if !ok {
		t.Fatal("no witness")
	}
	env, err := readEnv(s.dir)
	must(t, err)
	faults, err := readFaults(s.dir)
	must(t, err)
	win := newWindow(w)
	must(t, scan(s.dir, win.names, win.observe))
	svg, err := Picture(win.events, faults, w, env)
	must(t, err)
	if dir := os.Getenv("LOCKQUAKE_PICTURES"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, s.report.Scenario+".svg"), svg, 0o644))
	}
	wellFormed(t, svg)
	return svg
}

func wellFormed(t *testing.T, doc []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

func TestPictureTemporary(t *testing.T) {
	pictureOf(t, pausedRun(t, false))
	pictureOf(t, pausedRun(t, true))
	pictureOf(t, restartRun(t))
	if _, ok := Choose(healthyRun(t).report); ok {
		t.Error("a healthy run has a witness")
	}
	_ = results.Pass
}
