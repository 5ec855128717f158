package zookeeper

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestParams: settings that the servers do not support are rejected, and the error names the key.
func TestParams(t *testing.T) {
	for _, c := range []struct {
		common topology.Common
		set    func(*Params)
		want   string
	}{
		{topology.Common{TTL: 2 * time.Second}, func(*Params) {}, ""},
		{topology.Common{TTL: 2 * time.Second, Nodes: 5}, func(*Params) {}, ""},
		{topology.Common{TTL: 2 * time.Second, Nodes: 4}, func(*Params) {}, "3 or 5"},
		{topology.Common{TTL: 2 * time.Second, Nodes: 1}, func(*Params) {}, "3 or 5"},
		{topology.Common{TTL: 300 * time.Millisecond}, func(*Params) {}, "raise sessions to min_session_timeout, 400ms"},
		{topology.Common{TTL: time.Minute}, func(*Params) {}, "cut sessions to max_session_timeout, 40s"},
		{topology.Common{TTL: time.Minute}, func(p *Params) { p.MaxSession = time.Minute }, ""},
		{topology.Common{TTL: 900 * time.Millisecond}, func(*Params) {}, "raise ttl above 1s"},
		{topology.Common{TTL: time.Second}, func(*Params) {}, ""},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.SyncLimit = 10 }, "raise ttl above 3.4s"},
		{topology.Common{TTL: 2*time.Second + 1}, func(*Params) {}, "whole milliseconds"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.TickTime = 200 }, "tick_time"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.SyncLimit = 0 }, "sync_limit"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.MinSession = time.Millisecond }, "min_session_timeout"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.MaxSession = time.Millisecond }, "max_session_timeout"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.CnxTimeout = 0 }, "cnx_timeout"},
		{topology.Common{TTL: 2 * time.Second}, func(p *Params) { p.Timeout = 0 }, "timeout"},
		{topology.Common{TTL: 2 * time.Second, Lock: "herd"}, func(p *Params) { p.SharedSession = true }, ""},
		{topology.Common{TTL: 2 * time.Second, Lock: "zk-lock"}, func(p *Params) { p.SharedSession = true }, "shared_session does not apply to lock zk-lock"},
	} {
		_, err := newTopology(c.common, func(into any) error { c.set(into.(*Params)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error is %v; it should say %q", c.common, err, c.want)
		}
	}
}

// TestLeastTTL compares the figure in the error with the check.
func TestLeastTTL(t *testing.T) {
	for ticks := 1; ticks < 30; ticks++ {
		p := defaults()
		p.SyncLimit, p.MaxSession = ticks, time.Hour
		p = p.derived()
		least := leastTTL(p.Lag)
		if err := p.checkTTL(least); err != nil {
			t.Error(err)
		}
		if err := p.checkTTL(least - 100*time.Millisecond); err == nil {
			t.Errorf("%s is enough for a lag of %s", least-100*time.Millisecond, p.Lag)
		}
	}
}

// TestCommand checks the second of three servers on one loopback address.
func TestCommand(t *testing.T) {
	ports := map[string]string{Port: "1", peerPort: "2", electionPort: "3"}
	at := func(node, port string) string {
		return "127.0.0.1:" + strings.TrimPrefix(node, "zookeeper-") + ports[port]
	}
	p := defaults().derived()
	argv := p.command(seat{number: 2, members: 3, dir: "/d", address: at})
	if !slices.Equal(argv[:2], []string{"sh", "-c"}) || !strings.Contains(argv[2], "\nexec java ") {
		t.Errorf("%q does not become the JVM", argv[:3])
	}
	if !slices.Equal(argv[3:5], []string{"zookeeper", "/d"}) || argv[6] != "2" {
		t.Errorf("directory and id: %q", argv[3:7])
	}
	for _, want := range []string{
		"dataDir=/d/data\nclientPort=21\nclientPortAddress=127.0.0.1\ntickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=40000\n",
		"syncLimit=2\ncnxTimeout=500\n",
		"maxClientCnxns=0\n4lw.commands.whitelist=*\n",
		"forceSync=yes\n",
		"server.1=127.0.0.1:12:13\nserver.2=127.0.0.1:22:23\nserver.3=127.0.0.1:32:33\n",
	} {
		if !strings.Contains(argv[5], want) {
			t.Errorf("%s\nlacks %s", argv[5], want)
		}
	}
	if n := len(argv); argv[n-1] != mainClass || argv[n-3] != "-cp" {
		t.Errorf("%q", argv[7:])
	}
	p.NoFsync = true
	if cfg := p.config(seat{number: 1, members: 3, dir: "/d", address: at}); !strings.Contains(cfg, "forceSync=no\n") {
		t.Error("unsafe_no_fsync does nothing")
	}
}

// TestQueue sorts contenders of both kinds of names by their numbers.
func TestQueue(t *testing.T) {
	nodes := []string{"lock-0000000010", "_c_0123456789abcdef0123456789abcdef-lock-0000000002", holderNode, "lock-0000000009", "lock-"}
	want := []string{"_c_0123456789abcdef0123456789abcdef-lock-0000000002", "lock-0000000009", "lock-0000000010"}
	if got := queue(nodes); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if next, err := ahead(nodes, "lock-0000000010"); err != nil || next != "lock-0000000009" {
		t.Errorf("before the last: %q, %v", next, err)
	}
	if next, err := ahead(nodes, want[0]); err != nil || next != "" {
		t.Errorf("before the first: %q, %v", next, err)
	}
	if _, err := ahead(nodes, "lock-0000000001"); err == nil {
		t.Error("a node that is gone has a place in the queue")
	}
}
