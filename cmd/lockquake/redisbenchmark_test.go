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

// What redis-benchmark takes and gives back: a key at random, in place of __rand_int__ a number of 12 digits below benchmarkKeys.
const (
	benchmarkKey   = "lock:__rand_int__"
	benchmarkOwner = "0123456789abcdef0123456789abcdef01234567"
	// benchmarkKeys are so many that a slice meets few of them twice. It makes some 10,000 to 40,000 calls: of the SETs of a slice 1 to 5 % find their key taken, of the
	// EVALSHAs as many find theirs given back.
	benchmarkKeys = 400_000
	// benchmarkHits is the least share of the EVALSHAs that must have deleted their key.
	benchmarkHits = 0.90
)

// fillScript makes the keys from ARGV[1] up to but not ARGV[2], as the SET of the benchmark does.
const fillScript = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do redis.call("SET", string.format("lock:%012d", i), ARGV[3], "PX", "600000") end`

// benchmarkedRedis is the Redis of redis-benchmark. It sends one command over and over, so that a cycle is a turn of each: SET has its turn on no keys, and EVALSHA
// its own on all of them, so that it deletes what it names. The server's own counters say whether it did.
type benchmarkedRedis struct {
	redisService
	gives          bool
	before         map[string]string // what the server had counted when the turn began
	scripts, given int64             // calls of the script, and keys that they deleted
}

// startBenchmark starts Redis' own benchmark with one command.
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

// ready makes the keys that are to be deleted.
func (s *benchmarkedRedis) ready(t *testing.T) {
	t.Helper()
	if !s.gives {
		return
	}
	const step = 10_000                 // the server answers nobody else meanwhile
	fill := redis.NewScript(fillScript) // EVALSHA too, of which the turn counts what follows
	for i := 0; i < benchmarkKeys; i += step {
		if err := fill.Run(context.Background(), s, nil, i, i+step, benchmarkOwner).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	}
	s.before = s.info(t)
}

// tidy demands that the keys were deleted, and deletes the others.
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
