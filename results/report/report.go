// Package report shows the findings of a run: as a text for terminals, as one self-contained page, and as a picture
// of a witness. It reads the run directory and judges nothing.
package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/page"
	"github.com/lockquake/lockquake/results/report/picture"
	"github.com/lockquake/lockquake/results/report/story"
)

// FilePicture is the picture's name in a run directory.
const FilePicture = "picture.svg"

// material is the content of a run directory beyond the report.
type material struct {
	env     results.Env
	told    *story.Story // nil without a story
	svg     []byte       // the picture of it
	charts  []page.Chart
	missing []string // what could not be shown, and why
}

// Write writes picture.svg, if the run has something to draw, and report.html into the run directory.
func Write(dir string, r results.Report) error {
	m := gather(dir, r)
	path := filepath.Join(dir, FilePicture)
	if m.svg == nil {
		// A picture of an earlier judgement must not survive.
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	} else if err := results.WriteAtomically(path, m.svg); err != nil {
		return err
	}
	return writePage(dir, r, m)
}

// Picture draws the story of the run directory as an SVG file; nil without one.
func Picture(dir string, r results.Report) ([]byte, error) {
	env, err := results.ReadEnv(dir)
	if err != nil {
		return nil, err
	}
	s, err := story.Of(dir, r, env)
	if err != nil || s == nil {
		return nil, err
	}
	return picture.Draw(s), nil
}

// gather reads the run directory. Damaged parts are left out, and named: a run that cannot be judged still gets its
// report.
func gather(dir string, r results.Report) material {
	var m material
	lack := func(what string, err error) { m.missing = append(m.missing, fmt.Sprintf("%s: %v", what, err)) }
	env, err := results.ReadEnv(dir)
	if err != nil {
		lack("the environment is not shown", err)
	}
	m.env = env
	faults, err := results.ReadFaults(dir)
	if err != nil {
		lack("the faults are not drawn", err)
	}
	faults = slices.DeleteFunc(faults, func(f history.Fault) bool { return f.Receipt.Status == history.NotMade })
	t := newTimeline(env)
	if err := t.read(dir, env); err != nil {
		lack("neither picture nor charts are drawn", err)
		return m
	}
	if m.told, err = story.Of(dir, r, env); err != nil {
		lack("the picture is not drawn", err)
	} else if m.told != nil {
		m.svg = picture.Draw(m.told)
	}
	if env.NoLock { // latencies and rates need grants
		return m
	}
	latencies, err := readSpectrum(dir)
	if err != nil {
		lack("the latency spectrum is not drawn", err)
	} else if len(latencies) == 0 && len(r.Latency) > 0 {
		lack("the latency spectrum is not drawn", fmt.Errorf("no histogram logs in %s",
			filepath.Join(dir, results.DirLatency)))
	}
	if m.charts, err = charts(latencies, t, faults); err != nil {
		lack("the charts are not drawn", err)
	}
	return m
}

// Explain describes a run in about ten lines of plain words: the content of the picture, in the order of time. It
// uses only the run's own events, faults and observations. If there is no story it says so.
func Explain(w io.Writer, dir string, r results.Report) error {
	env, err := results.ReadEnv(dir)
	if err != nil {
		return err
	}
	s, err := story.Of(dir, r, env)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := fmt.Fprintln(w, "No violation was found and no fault was injected: there is nothing to explain.")
		return err
	}
	_, err = io.WriteString(w, strings.Join(s.Explain(), "\n")+"\n")
	return err
}
