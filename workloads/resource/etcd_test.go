package resource

import (
	"testing"
)

// The log is told in the order of its revisions, whatever the senders' clocks say, and no line is dated before it was sent.
func TestEtcdLogIsRetraced(t *testing.T) {
	log, cells := retrace([]string{"lock-0", "lock-1"}, []effect{
		{Sent: 100, Lock: "lock-0", User: "client-1/0", Grant: 1, OK: true},
		{Sent: 150, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, OK: true, Value: 7},
		{Sent: 120, Lock: "lock-0", User: "client-2/0", Grant: 4, OK: true}, // it was held up on its way
		{Sent: 160, Lock: "lock-0", User: "client-1/0", Grant: 1, Write: true, Value: 8},
	})
	if cells["lock-0"] != (final{value: 7, applied: 1}) || cells["lock-1"] != (final{}) || len(cells) != 2 {
		t.Errorf("what stands is %+v", cells)
	}
	want := []entry{
		{at: 100, lock: "lock-0", user: "client-1/0", grant: 1, ok: true},
		{at: 150, lock: "lock-0", user: "client-1/0", grant: 1, write: true, ok: true, value: 7},
		{at: 151, lock: "lock-0", user: "client-2/0", grant: 4, ok: true, value: 7},
		{at: 160, lock: "lock-0", user: "client-1/0", grant: 1, write: true, value: 8},
	}
	for i, e := range log {
		if e != want[i] {
			t.Errorf("line %d is %+v, want %+v", i, e, want[i])
		}
	}
}
