package chaos

import "testing"

type parted struct{ bareNode }

func (p parted) Capabilities() []any { return []any{startable{}} }

type startable struct{ Starter }

func TestAs(t *testing.T) {
	if _, ok := As[Starter](parted{"a"}); !ok {
		t.Error("a part that can be started was not found")
	}
	if _, ok := As[Inspector](parted{"a"}); ok {
		t.Error("no part can be inspected, and one was found")
	}
	if n, ok := As[Node](parted{"a"}); !ok || n.Name() != "a" {
		t.Errorf("the node itself is %v", n)
	}
	if _, ok := As[Starter](nil); ok {
		t.Error("nothing can be started")
	}
}
