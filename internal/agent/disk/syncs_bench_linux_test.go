//go:build bench

package disk

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// The arms of TestSyncHoldCost, in turns on one server.
var holdArms = []struct {
	name string
	by   time.Duration // for which each call is held; 0: nothing is traced
}{
	{"nothing", 0},
	{"nothing again", 0},
	{"traced, held 1 ns", 1},
	{"traced, held 10 ms", 10 * time.Millisecond}, // the least that slow-disk takes
	{"after the heal", 0},                         // right after the arm before
}

// TestSyncHoldCost prints how many writes a second a real Redis takes from clients that wait for each answer: without the fault, without
// it again (A/A), with the tracer and next to no hold, with the shortest hold of slow-disk, and right after the heal, in turns. The agent
// and the server are processes as those of the local provider.
func TestSyncHoldCost(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("the cost of slow-disk was not measured:", err)
		t.Skip(err)
	}
	const rounds, lasts = 15, 500 * time.Millisecond
	for _, c := range []struct {
		policy  string
		clients int
		threads []string
	}{{"always", 1, nil}, {"always", 8, nil}, {"everysec", 8, []string{"bio_aof"}}} {
		s := serveRedis(t, c.policy)
		s.writes(c.clients, lasts) // warm-up, not counted
		rates, begun := make([][]float64, len(holdArms)), agenttest.Load()
		for range rounds {
			for i, arm := range holdArms {
				before := disk.Syncs{}
				if arm.by > 0 {
					before = s.hold(arm.by, c.threads)
				}
				n := s.writes(c.clients, lasts)
				rates[i] = append(rates[i], n)
				if arm.by > 0 {
					s.letGo(before, arm.name)
				}
			}
		}
		fmt.Printf("appendfsync %s, %d clients, %d rounds of %v for each, load %s to %s: writes a second\n", c.policy, c.clients, rounds, lasts, begun, agenttest.Load())
		for i, arm := range holdArms {
			var shares []float64
			for r, n := range rates[i] {
				shares = append(shares, n/rates[0][r])
			}
			fmt.Printf("  %-20s median %8.0f (%.0f to %.0f), %.3f of the first of its round (%.3f to %.3f); calls held %d\n", arm.name, middle(rates[i]),
				slices.Min(rates[i]), slices.Max(rates[i]), middle(shares), slices.Min(shares), slices.Max(shares), s.held[arm.name])
		}
	}
}

func middle(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	return s[len(s)/2]
}

// redisServer is a Redis, and an agent that can hold its syncs.
type redisServer struct {
	t     *testing.T
	agent *agent.Client
	p     proc.Process
	sock  string
	held  map[string]int64 // calls, by arm
}

func serveRedis(t *testing.T, policy string) *redisServer {
	t.Helper()
	dir := t.TempDir()
	s := &redisServer{t: t, sock: filepath.Join(dir, "s"), held: map[string]int64{}}
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", s.sock, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", policy)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var in io.WriteCloser
	_, in, out := agenttest.Child(t, "agent")
	var err error
	if s.agent, err = agent.Connect(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	if s.p, err = s.agent.Own(t.Context(), cmd.Process.Pid, false); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn, err := net.Dial("unix", s.sock)
		if err == nil {
			_ = conn.Close()
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return nil
}

// writes returns how many writes a second clients make that wait for each answer.
func (s *redisServer) writes(clients int, lasts time.Duration) float64 {
	s.t.Helper()
	counts := make([]int, clients)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range clients {
		all.Go(func() {
			conn, err := net.Dial("unix", s.sock)
			if err != nil {
				s.t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			for answers := bufio.NewReader(conn); time.Since(begin) < lasts; counts[i]++ {
				if _, err = fmt.Fprintf(conn, "SET key-%d %d\r\n", i, counts[i]); err == nil {
					var line string
					if line, err = answers.ReadString('\n'); err == nil && !strings.HasPrefix(line, "+OK") {
						err = fmt.Errorf("answer %q", line)
					}
				}
				if err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds()
}

const holdKey = "cost/redis"

// hold begins to delay the calls, and returns the counts before.
func (s *redisServer) hold(by time.Duration, threads []string) disk.Syncs {
	s.t.Helper()
	var out disk.Syncs
	if err := s.agent.Order(s.t.Context(), agent.Order{Do: disk.DoSyncs, Process: s.p, Key: holdKey, Args: disk.SyncsArgs{By: time.Duration(by), Threads: threads}}, &out); err != nil {
		fmt.Println("the cost of slow-disk was not measured:", err)
		s.t.Skip(err)
	}
	if out.Traced == 0 {
		s.t.Error("nothing is traced")
	}
	return out
}

// letGo ends the delay, and counts the calls that were delayed since.
func (s *redisServer) letGo(before disk.Syncs, arm string) {
	s.t.Helper()
	var out disk.Syncs
	if err := s.agent.Undo(s.t.Context(), holdKey, &out); err != nil || out.Traced != 0 {
		s.t.Fatalf("%+v: %v", out, err)
	}
	s.held[arm] += out.Calls - before.Calls
}
