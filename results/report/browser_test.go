//go:build integration

package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/lockquake/lockquake/results"
)

// browser starts a headless chromium without network, and collects the errors on its console.
func browser(t *testing.T) (context.Context, func() []string) {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("no chromium on PATH: install the Debian package chromium to run the browser test")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // ends a browser that hangs
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var bad []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); bad = append(bad, s) }
	must(t, chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			note("exception: " + e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			note(fmt.Sprintf("console %s", e.Type))
		case *network.EventLoadingFailed:
			note("not loaded: " + e.ErrorText)
		case *network.EventRequestWillBeSent:
			if e.Request.URL[:5] != "file:" {
				note("asked for " + e.Request.URL)
			}
		}
	}))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: true})
	must(t, err)
	return ctx, func() []string { mu.Lock(); defer mu.Unlock(); return bad }
}

// box has the page's measurements of itself.
type box struct {
	Wide, Inner   float64
	High          float64
	Hint          bool     // shows that the picture scrolls
	Cut           []string // words that reach beyond the page and beyond what scrolls
	Pictures      int
	Width, Height float64
	Charts        int
	Headings      []string
	Overlaps      []string
	Scheme        string
}

// measure reads the page's width, its headings, its picture, and which labels of the picture overlap.
const measure = `(() => {
  const svg = document.querySelector('svg.lq');
  const r = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
  const texts = svg ? [...svg.querySelectorAll('text')] : [];
  const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
  const overlaps = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const [a, b] = [boxes[i][1], boxes[j][1]];
    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) overlaps.push(boxes[i][0] + ' | ' + boxes[j][0]);
  }
  for (const g of svg ? svg.querySelectorAll('rect.lq-group') : []) for (const t of texts) {
    const [f, b] = [g.getBoundingClientRect(), t.getBoundingClientRect()], mid = (b.left + b.right) / 2;
    if (t.getAttribute('class') === 'lq-small' && mid > f.left && mid < f.right && b.top > f.top - 2 && b.bottom < f.top + 26 && (b.left < f.left || b.right > f.right)) overlaps.push(t.textContent + ' | its box');
  }
  for (const [s, b] of boxes) if (b.left < r.left || b.right > r.right || b.bottom > r.bottom) overlaps.push(s + ' | the frame');
  const cut = [...document.querySelectorAll('h1,h2,h3,p,li,dt,dd,summary')].filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > window.innerWidth).map(e => e.textContent);
  const hint = document.querySelector('.hint');
  return {High: document.scrollingElement.scrollHeight, Hint: !!hint && getComputedStyle(hint).display !== 'none', Cut: cut, Wide: document.scrollingElement.scrollWidth, Inner: window.innerWidth, Pictures: document.querySelectorAll('svg.lq').length,
    Width: r.width, Height: r.height, Charts: document.querySelectorAll('svg.chart').length,
    Headings: [...document.querySelectorAll('h1,h2')].map(h => h.textContent.trim()), Overlaps: overlaps,
    Scheme: getComputedStyle(document.body).backgroundColor};
})()`

// visit opens a written report and measures it.
func visit(ctx context.Context, t *testing.T, s synthetic) box {
	t.Helper()
	must(t, chromedp.Do(ctx, chromedp.Navigate("file://"+filepath.Join(s.dir, results.FileReport))))
	b, err := chromedp.Run(ctx, chromedp.Evaluate[box](measure))
	must(t, err)
	return b
}

func TestReportInABrowser(t *testing.T) {
	ctx, bad := browser(t)
	for _, s := range []synthetic{pausedRun(t, false), pausedRun(t, true), restartRun(t), crowdedRun(t), healthyRun(t), recorded(t)} {
		must(t, Write(s.dir, s.report))
		_, err := os.Stat(filepath.Join(s.dir, FilePicture))
		hasPicture := err == nil
		for _, width := range []int64{380, 1280} {
			t.Run(fmt.Sprintf("%s-%d", s.report.Scenario, width), func(t *testing.T) {
				must(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)))
				b := visit(ctx, t, s)
				if b.Wide > b.Inner || int64(b.Inner) != width {
					t.Errorf("the page is %g px wide in a window of %g, wanted %d", b.Wide, b.Inner, width)
				}
				if hasPicture && (b.Pictures != 1 || b.Width < 300 || b.Height < 300) {
					t.Errorf("%d pictures of %g x %g px", b.Pictures, b.Width, b.Height)
				}
				if b.High > 6000 || len(b.Cut) > 0 {
					t.Errorf("the page is %g px high, and cut are %q", b.High, b.Cut)
				}
				if scrolls := hasPicture && b.Width > b.Inner; scrolls != b.Hint && hasPicture {
					t.Errorf("a picture of %g px in a window of %g: told to scroll %t", b.Width, b.Inner, b.Hint)
				}
				if len(b.Overlaps) > 0 {
					t.Errorf("labels of the picture lie on each other: %q", b.Overlaps)
				}
				if b.Charts != 3 {
					t.Errorf("%d charts, want 3", b.Charts)
				}
				if len(b.Headings) < 7 {
					t.Errorf("headings: %q", b.Headings)
				}
			})
		}
	}
	if got := bad(); len(got) > 0 {
		t.Errorf("the browser complained: %q", got)
	}
}

func TestReportFollowsTheScheme(t *testing.T) {
	ctx, _ := browser(t)
	s := pausedRun(t, false)
	must(t, Write(s.dir, s.report))
	colours := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		must(t, err)
		colours[visit(ctx, t, s).Scheme] = true
	}
	if len(colours) != 2 {
		t.Errorf("light and dark look alike: %v", colours)
	}
}
