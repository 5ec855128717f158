package etcd

import (
	"testing"

	"github.com/lockquake/lockquake/workloads/resource"
)

// The log keeps the order of its revisions, whatever the senders' clocks say, and no line is dated before it was
// sent.
func TestEtcdLogIsRetraced(t *testing.T) {
	log, cells := retrace([]string{"lock-0", "lock-1"}, []effect{
		{Sent: 100, Lock: "lock-0", User: "client-1/0", Grant: 1, OK: true},
		{Sent: 150, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, OK: true, Value: 7},
		{Sent: 120, Lock: "lock-0", User: "client-2/0", Grant: 4, OK: true}, // it was delayed on its way
		{Sent: 160, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, Value: 8},
	})
	if cells["lock-0"] != (resource.Final{Value: 7, Applied: 1}) || cells["lock-1"] != (resource.Final{}) || len(cells) != 2 {
		t.Errorf("what stands is %+v", cells)
	}
	want := []resource.Entry{
		{At: 100, Lock: "lock-0", User: "client-1/0", Grant: 1, OK: true},
		{At: 150, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, OK: true, Value: 7},
		{At: 151, Lock: "lock-0", User: "client-2/0", Grant: 4, OK: true, Value: 7},
		{At: 160, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, Value: 8},
	}
	for i, e := range log {
		if e != want[i] {
			t.Errorf("line %d is %+v, want %+v", i, e, want[i])
		}
	}
}
