package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
)

// lame is a provider that takes every fault on, and starts nothing: whatever is tried there is tried in vain.
type lame struct{ generous }

func (lame) Open(context.Context, cluster.Request) (*cluster.Cluster, error) {
	return nil, chaos.Unavailable{What: "a node", Reason: "it is lame"}
}

// TestWhatWasTriedInVainIsTriedAgain has one doctor after another answer two attempts: one that has worked, and one that has not.
func TestWhatWasTriedInVainIsTriedAgain(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKQUAKE_BIN", self)
	all, err := attempts()
	if err != nil {
		t.Fatal(err)
	}
	var list []attempt
	for _, a := range all {
		if a.kind.Name == "pause" && (a.column == onServer || a.column == onClient) {
			list = append(list, a)
		}
	}
	if len(list) != 2 {
		t.Fatalf("%d attempts", len(list))
	}
	p := lame{}
	worked, failed := list[0], list[1]
	b, err := openBook(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	b.note(worked, way{Answer: yes, Evidence: "it stood"})
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
	for round, again := range []bool{false, true, true} {
		var said strings.Builder
		d, done, err := newDoctor(slog.New(slog.DiscardHandler), func(format string, args ...any) {
			said.WriteString(strings.TrimSpace(fmt.Sprintf(format, args...)) + "\n")
		})
		if err != nil {
			t.Fatal(err)
		}
		if b, err = openBook(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		ways, err := d.answers(t.Context(), p, list, b)
		done()
		if err != nil {
			t.Fatal(err)
		}
		if w := ways[0]; w.Answer != yes || !w.Cached || w.Again {
			t.Errorf("doctor %d: %s, which had worked: %+v", round+1, worked, w)
		}
		if w := ways[1]; w.Answer != no || w.Cached || w.Again != again {
			t.Errorf("doctor %d: %s, which had not: %+v", round+1, failed, w)
		}
		if got := strings.Contains(said.String(), failed.String()+": an earlier doctor tried it in vain"); got != again {
			t.Errorf("doctor %d says that it tries again: %t\n%s", round+1, got, said.String())
		}
	}
}
