//go:build integration

package capacity

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// seen has the page's measurements of itself.
type seen struct {
	Wide, Inner float64
	Cut         []string
	Away        []string // answer columns beyond the window
	Answers     int      // tables with such columns
	Charts      int
	Paper       string
}

const look = `(() => ({
  Wide: document.scrollingElement.scrollWidth, Inner: window.innerWidth, Charts: document.querySelectorAll('svg.chart').length,
  Cut: [...document.querySelectorAll('h1,h2,h3,p,li,dt,dd,summary')].filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > window.innerWidth).map(e => e.textContent),
  Away: [...document.querySelectorAll('thead th')].filter(e => ['users','offered/s','cycles/s','p50','p99','limit'].includes(e.textContent) && e.getBoundingClientRect().right > window.innerWidth).map(e => e.textContent),
  Answers: [...document.querySelectorAll('thead tr')].filter(e => e.textContent.match(/^(users|offered.s)cycles.sp50p99limit/)).length,
  Paper: getComputedStyle(document.body).backgroundColor}))()`

func TestPageInABrowser(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("no chromium on PATH: install the Debian package chromium to run the browser test")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // ends a browser that hangs
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	file := filepath.Join(t.TempDir(), FileReport)
	if err := os.WriteFile(file, []byte(pageOf(t, invented())), 0o600); err != nil {
		t.Fatal(err)
	}
	papers := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int64{390, 1280} {
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil {
				t.Fatal(err)
			}
			if err := chromedp.Do(ctx, chromedp.Navigate("file://"+file)); err != nil {
				t.Fatal(err)
			}
			s, err := chromedp.Run(ctx, chromedp.Evaluate[seen](look))
			if err != nil {
				t.Fatal(err)
			}
			if s.Wide > s.Inner || int64(s.Inner) != width || len(s.Cut) > 0 {
				t.Errorf("the page is %g px wide in a window of %g, wanted %d; cut are %q", s.Wide, s.Inner, width, s.Cut)
			}
			if len(s.Away) > 0 || s.Answers != 5 {
				t.Errorf("in a window of %d px the columns %q of %d tables are out of sight", width, s.Away, s.Answers)
			}
			if s.Charts != 8 {
				t.Errorf("%d charts", s.Charts)
			}
			papers[s.Paper] = true
		}
	}
	if len(papers) != 2 {
		t.Errorf("light and dark look alike: %v", papers)
	}
}
