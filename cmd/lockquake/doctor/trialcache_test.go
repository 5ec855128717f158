package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
)

// unable is a provider that accepts every fault but starts no node, so that every attempt fails.
type unable struct{}

func (unable) Name() string                                       { return "unable" }
func (unable) Offers(chaos.Capability, node.Role) error           { return nil }
func (unable) Prepares(node.Preparation, node.Spec, string) error { return nil }

func (unable) Open(context.Context, cluster.Request) (*cluster.Cluster, error) {
	return nil, chaos.Unavailable{What: "a node", Reason: "it is made to fail"}
}

// TestFailedAttemptsAreRepeated: of two attempts, several doctors in a row repeat only the one that has not
// worked.
func TestFailedAttemptsAreRepeated(t *testing.T) {
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
	p := unable{}
	worked, failed := list[0], list[1]
	b, err := openTrialCache(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	b.note(worked, way{Answer: Yes, Evidence: "it stood"})
	if err := b.save(); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		var said strings.Builder
		d, done, err := newDoctor(slog.New(slog.DiscardHandler), func(format string, args ...any) {
			said.WriteString(strings.TrimSpace(fmt.Sprintf(format, args...)) + "\n")
		})
		if err != nil {
			t.Fatal(err)
		}
		if b, err = openTrialCache(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		ways, err := d.answers(t.Context(), p, list, b)
		done()
		if err != nil {
			t.Fatal(err)
		}
		if w := ways[0]; w.Answer != Yes || !w.Cached {
			t.Errorf("doctor %d: %s, which had worked: %+v", round+1, worked, w)
		}
		if w := ways[1]; w.Answer != No || w.Cached || !strings.Contains(said.String(), failed.String()) {
			t.Errorf("doctor %d: %s, which had not: %+v", round+1, failed, w)
		}
	}
}
