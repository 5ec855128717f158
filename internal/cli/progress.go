package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/figure"
)

// plainEvery is how often a run without a terminal prints its progress.
const plainEvery = 10 * time.Second

// Progress shows the progress of a run: as a bar if standard error is a terminal, else as lines. Anything else
// written to it appears above the bar.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	bars  *mpb.Progress                   // nil: lines
	bar   *mpb.Bar                        // of the run under way
	state atomic.Pointer[engine.Progress] // read while the bar is drawn, which may happen under mu
	phase string
	lines int64 // clock.Now() when the last line without news was written
}

// NewProgress returns the progress of a command line; quiet leaves the bar out.
func NewProgress(w io.Writer, quiet bool) *Progress {
	p := &Progress{w: w}
	if out, ok := w.(*printed); ok && !quiet {
		if f := out.terminal(); f != nil {
			p.bars = mpb.New(mpb.WithOutput(f), mpb.WithWidth(30), mpb.WithRefreshRate(200*time.Millisecond))
		}
	}
	return p
}

// Write writes lines for people.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	bars := p.bars
	p.mu.Unlock()
	if bars != nil {
		if _, err := bars.Write(escaped(b)); err == nil {
			return len(b), nil
		}
	}
	return p.w.Write(b)
}

// Say writes one line for people.
func (p *Progress) Say(format string, args ...any) {
	var b bytes.Buffer
	fmt.Fprintf(&b, format+"\n", args...)
	_, _ = p.Write(b.Bytes()) // standard error is gone
}

// Update shows the engine's progress.
func (p *Progress) Update(s engine.Progress) {
	p.mu.Lock()
	bars, news := p.bars, s.Text != "" || s.Phase != p.phase
	p.state.Store(&s)
	p.phase = s.Phase
	if bars != nil {
		p.draw(s)
	} else if clock.Now()-p.lines >= int64(plainEvery) {
		news = true
	}
	if news {
		p.lines = clock.Now()
	}
	p.mu.Unlock()
	switch {
	case bars != nil && s.Text != "":
		p.Say("%s", s.Text)
	case bars == nil && news:
		p.Say("%s", plainLine(s))
	}
}

// draw moves the bar; the lock is held.
func (p *Progress) draw(s engine.Progress) {
	total := max(s.Total.Milliseconds(), 1)
	if p.bar == nil {
		p.bar = p.bars.New(total, mpb.BarStyle(),
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.head() }, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return p.tail() })),
		)
	}
	// The last step is kept back: a full bar is a finished one.
	p.bar.SetTotal(total+1, false)
	p.bar.SetCurrent(min(s.Elapsed.Milliseconds(), total))
}

func (p *Progress) head() string {
	return p.state.Load().Phase
}

func (p *Progress) tail() string {
	s := p.state.Load()
	if s.Left > 0 {
		return fmt.Sprintf("%v, about %v left", s.Elapsed.Truncate(time.Second), s.Left.Round(time.Second))
	}
	return fmt.Sprintf("%v, %s, %s", s.Elapsed.Truncate(time.Second), figure.Of(s.Grants, "grant"),
		figure.Of(s.Faults, "fault"))
}

// plainLine returns the progress as a line.
func plainLine(s engine.Progress) string {
	line := s.Phase
	if s.Elapsed > 0 && s.Total > 0 {
		line += fmt.Sprintf(" %v of %v", s.Elapsed.Truncate(time.Second), s.Total)
	}
	if s.Grants > 0 || s.Faults > 0 {
		line += ", " + figure.Of(s.Grants, "grant") + ", " + figure.Of(s.Faults, "fault")
	}
	if s.Text != "" {
		line += ": " + s.Text
	}
	return line
}

// Finish removes the bar of the run that ended.
func (p *Progress) Finish() {
	p.mu.Lock()
	bar := p.bar
	p.bar, p.phase, p.lines = nil, "", 0
	p.mu.Unlock()
	if bar != nil {
		bar.Abort(true)
		bar.Wait()
	}
}

// Close restores the terminal. It may be called more than once.
func (p *Progress) Close() {
	p.Finish()
	p.mu.Lock()
	bars := p.bars
	p.bars = nil
	p.mu.Unlock()
	if bars != nil {
		bars.Wait()
	}
}
