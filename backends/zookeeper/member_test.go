package zookeeper

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestSyncsAreRead uses three answers to mntr: a normal one, one without counts of syncs, and that of a server that
// does not serve.
func TestSyncsAreRead(t *testing.T) {
	const head = "zk_version\t3.8.0\nzk_avg_fsynctime\t2.5\nzk_max_fsynctime\t9\n"
	for text, want := range map[string]topology.Syncs{
		head + "zk_cnt_fsynctime\t14\nzk_sum_fsynctime\t35\n":       {N: 14, Took: 35 * time.Millisecond},
		head + "zk_cnt_fsynctime\t14\n":                             {},
		"This ZooKeeper instance is not currently serving requests": {},
	} {
		m := member{name: "zookeeper-1", dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if _, err := io.ReadFull(theirs, make([]byte, len("mntr"))); err == nil {
					_, _ = io.WriteString(theirs, text)
				}
			}()
			return ours, nil
		}}
		s := &service{params: Params{LockParams: LockParams{Timeout: time.Second}}, members: []member{m}}
		got, ok := s.Syncs(t.Context())["zookeeper-1"]
		if got != want || ok != (want.N > 0) {
			t.Errorf("%q: %+v, %t, want %+v", text, got, ok, want)
		}
	}
}
