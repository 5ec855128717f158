package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cluster"
)

// inContainers is a provider of containers.
type inContainers struct{ cluster.Provider }

func (inContainers) EngineID(context.Context) (string, error) { return "", nil }

// TestUnreachableFromContainersNamesTheRemedy, and no other user is.
func TestUnreachableFromContainersNamesTheRemedy(t *testing.T) {
	t.Parallel()
	if said := elsewhere(inContainers{}); !strings.Contains(said, "--provider local") {
		t.Errorf("it says %q", said)
	}
	if said := elsewhere(nil); said != "" {
		t.Errorf("processes are told %q", said)
	}
}
