//go:build bench

package main

import (
	"context"
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/internal/cluster"
)

// The keys of redis-benchmark are random: it replaces __rand_int__ by a number of 12 digits below benchmarkKeys.
const (
	benchmarkKey   = "lock:__rand_int__"
	benchmarkOwner = "0123456789abcdef0123456789abcdef01234567"
	// benchmarkKeys is so large that few keys come twice in a slice of 10,000 to 40,000 calls. 1 to 5 % of the SETs of
	// a slice find their key taken, and as many EVALSHAs find theirs deleted.
	benchmarkKeys = 400_000
	// benchmarkHits is the least share of the EVALSHAs that must have deleted their key.
	benchmarkHits = 0.90
)

// fillScript creates the keys from ARGV[1] up to but not including ARGV[2], as the SET of the benchmark does.
const fillScript = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do redis.call("SET", string.format("lock:%012d", i), ARGV[3], "PX", "600000") end`

// benchmarkedRedis is the server of redis-benchmark. The benchmark repeats a single command, so a cycle is one turn of
// each command: SET starts without keys, EVALSHA with all of them, so that it deletes the keys it names. The server's
// counters show whether it did.
type benchmarkedRedis struct {
	redisService
	gives          bool
	before         map[string]string // the server's counters at the start of the turn
	scripts, given int64             // calls of the script, and keys it deleted
}

// startBenchmark starts redis-benchmark with one command.
func startBenchmark(t *testing.T, beside int, server *cluster.Node, command string, words ...string) *contender {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Address(access.Port))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"redis-benchmark", "-h", host, "-p", port, "-a", server.Login().Password, "-c", strconv.Itoa(users), "-n", "2000000000", "-r", strconv.Itoa(benchmarkKeys),
		"--dbnum", "1", "-q",
	}
	c := &contender{name: "redis-benchmark " + command, service: &benchmarkedRedis{redisService: connectTo(t, server, command, 1), gives: command == "evalsha"}}
	return startBeside(t, beside, c, nil, append(args, words...)...)
}

// ready creates the keys to delete.
func (s *benchmarkedRedis) ready(t *testing.T) {
	t.Helper()
	if !s.gives {
		return
	}
	const step = 10_000                 // the server answers nothing else meanwhile
	fill := redis.NewScript(fillScript) // also uses EVALSHA, but before the turn counts
	for i := 0; i < benchmarkKeys; i += step {
		if err := fill.Run(context.Background(), s, nil, i, i+step, benchmarkOwner).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	}
	s.before = s.info(t)
}

// tidy checks that the keys were deleted, and deletes the rest.
func (s *benchmarkedRedis) tidy(t *testing.T) {
	t.Helper()
	if s.gives {
		now := s.info(t)
		asked, deleted := calls(t, now, "evalsha")-calls(t, s.before, "evalsha"), calls(t, now, "del")-calls(t, s.before, "del")
		if share := float64(deleted) / float64(asked); !(share >= benchmarkHits) {
			t.Errorf("redis-benchmark: %d EVALSHAs deleted %d keys, which is %.0f %%; want %.0f %%", asked, deleted, 100*share, 100*benchmarkHits)
		}
		s.scripts, s.given = s.scripts+asked, s.given+deleted
	}
	s.redisService.tidy(t)
}
