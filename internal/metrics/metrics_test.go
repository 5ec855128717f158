package metrics

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/lockquake/lockquake/history"
)

func scrape(t *testing.T, s *Server) string {
	t.Helper()
	answer, err := http.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, err)
	}
	return string(body)
}

// TestIdleConnections: idle connections take few of the process's files, and do not block a scrape for long.
func TestIdleConnections(t *testing.T) {
	const idle = 200
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("the open files of the process cannot be counted here:", err)
		}
		return len(list)
	}
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.http.ReadTimeout = 20 * time.Millisecond
	go s.Serve(slog.New(slog.DiscardHandler))
	defer s.Close()
	before := files()
	for range idle {
		c, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	const others = 8 // of the runtime and the test
	if took := files() - before - idle; took > mostConnections+others {
		t.Errorf("%d idle connections took %d files", idle, took)
	}
	if text := scrape(t, s); !strings.Contains(text, "go_goroutines") {
		t.Error("nothing is served beside them")
	}
}

// TestMetrics feeds a run of three users and one fault, and scrapes it before and after its end.
func TestMetrics(t *testing.T) {
	s, err := Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("without a host it serves at %s", s.URL())
	}
	go s.Serve(slog.New(slog.DiscardHandler))
	defer s.Close()
	r := s.Run("a-story", "etcd", "mutex")
	ms := int64(time.Millisecond)
	r.Observe([]history.Event{
		{Time: 10 * ms, Seq: 1, Op: 1, User: 0, Kind: history.Acquire, Phase: history.Invoke},
		{Time: 12 * ms, Seq: 2, Op: 1, User: 0, Kind: history.Acquire, Phase: history.Ok, Grant: 1},
		{Time: 20 * ms, Seq: 3, Op: 3, User: 1, Kind: history.Acquire, Phase: history.Invoke, Value: 15 * ms}, // of an open loop
		{Time: 26 * ms, Seq: 4, Op: 4, User: 0, Kind: history.Release, Phase: history.Invoke, Grant: 1},
		{Time: 27 * ms, Seq: 5, Op: 4, User: 0, Kind: history.Release, Phase: history.Ok, Grant: 1},
		{Time: 45 * ms, Seq: 6, Op: 3, User: 1, Kind: history.Acquire, Phase: history.Ok, Grant: 3},
		{Time: 50 * ms, Seq: 7, Op: 7, User: 2, Kind: history.Acquire, Phase: history.Invoke},
		{Time: 60 * ms, Seq: 8, Op: 7, User: 2, Kind: history.Acquire, Phase: history.Info},
	})
	r.Progress("up", 0, 0, 0)
	r.Progress("load", 1, 2, 1)
	of := `backend="etcd",lock="mutex",`
	want := func(text string, lines ...string) {
		t.Helper()
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%q is not in\n%s", line, regexp.MustCompile(`(?m)^(#|go_|process_).*\n`).ReplaceAllString(text, ""))
			}
		}
	}
	text := scrape(t, s)
	want(text,
		`lockquake_operations_total{`+of+`operation="acquire",outcome="ok",scenario="a-story"} 2`,
		`lockquake_operations_total{`+of+`operation="acquire",outcome="info",scenario="a-story"} 1`,
		`lockquake_operations_total{`+of+`operation="release",outcome="ok",scenario="a-story"} 1`,
		`lockquake_acquire_seconds_sum{`+of+`scenario="a-story"} 0.032`, // 2 ms, and 30 ms from the intended start
		`lockquake_acquire_seconds_count{`+of+`scenario="a-story"} 2`,
		`lockquake_hold_seconds_sum{`+of+`scenario="a-story"} 0.014`,
		`lockquake_grants_in_hand{`+of+`scenario="a-story"} 1`,
		`lockquake_faults_injected{`+of+`scenario="a-story"} 2`,
		`lockquake_faults_standing{`+of+`scenario="a-story"} 1`,
		`lockquake_run_phase{`+of+`phase="load",scenario="a-story"} 1`)
	if strings.Contains(text, `phase="up"`) {
		t.Error("the run is in two phases")
	}
	lints, err := promlint.New(bytes.NewBufferString(text)).Lint()
	if err != nil || len(lints) > 0 {
		t.Errorf("the format: %v, %v", lints, err)
	}
	r.End("pass")
	load := text
	text = scrape(t, s)
	want(text, `lockquake_runs_total{`+of+`scenario="a-story",verdict="pass"} 1`, `lockquake_grants_in_hand{`+of+`scenario="a-story"} 0`)
	dashboard, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`lockquake_[a-z_]+`).FindAllString(string(dashboard), -1) {
		if !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("the dashboard shows %s, which is not served", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?s)histogram_quantile\(([0-9.]+).*?"legendFormat": "(.*?)"`).FindAllStringSubmatch(string(dashboard), -1) {
		if q, err := strconv.ParseFloat(m[1], 64); err != nil || !strings.HasSuffix(m[2], fmt.Sprintf(" p%g", 100*q)) {
			t.Errorf("the dashboard calls the quantile %s %q", m[1], m[2])
		}
	}
	documented(t, load+text)
}

// documented checks that the table of docs/commands.md matches what is served.
func documented(t *testing.T, text string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	served, told := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (lockquake_\S+)`).FindAllStringSubmatch(text, -1) {
		served[m[1]] = true
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(lockquake_[a-z_]+)").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
	}
	if !maps.Equal(served, told) {
		t.Errorf("served are %v, docs/commands.md tells of %v", slices.Sorted(maps.Keys(served)), slices.Sorted(maps.Keys(told)))
	}
}

// TestListenRefuses takes addresses that make no sense, and one that is taken.
func TestListenRefuses(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	taken := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/metrics")
	for addr, want := range map[string]string{"9464": "want HOST:PORT", "127.0.0.1:port": "port", taken: "address already in use"} {
		if l, err := Listen(addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, should be about %q", addr, err, want)
			if l != nil {
				l.Close()
			}
		}
	}
}
