package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestMetricsWhileARunLasts scrapes the metrics of a running run, and ends it.
func TestMetricsWhileARunLasts(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("lockquake", "run", "memory-healthy", "--set", "run.for=1m", "--metrics-addr", "127.0.0.1:0")
	cmd.Dir = t.TempDir()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, url := bufio.NewScanner(stderr), ""
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "metrics: ")
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	text := ""
	scraped := wait.Within(time.Minute, func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		text = string(body)
		return strings.Contains(text, `lockquake_acquire_seconds_count{backend="memory",lock="exact",scenario="memory-healthy"}`) &&
			strings.Contains(text, `lockquake_run_phase{backend="memory",lock="exact",phase="load",scenario="memory-healthy"} 1`)
	})
	if !scraped {
		t.Errorf("%q served no run in its load:\n%s", url, text)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != cli.CodeInterrupted {
		t.Errorf("exit code %d", code)
	}
}
