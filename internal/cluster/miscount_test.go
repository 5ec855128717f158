package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// inspected answers every question for a network.
type inspected struct {
	in  map[string]network.EndpointResource
	err error
}

func (i inspected) NetworkInspect(context.Context, string, client.NetworkInspectOptions) (client.NetworkInspectResult, error) {
	var out client.NetworkInspectResult
	out.Network.Containers = i.in
	return out, i.err
}

// TestMiscountedEndpoints: only a network that is refused for endpoints, and has none, is miscounted.
func TestMiscountedEndpoints(t *testing.T) {
	t.Parallel()
	kept := errors.New("remove network dfcedc2b2803: Error response from daemon: network lockquake-f810429c id dfcedc2b2803 has active endpoints")
	for _, c := range []struct {
		engine inspected
		err    error
		want   bool
	}{
		{inspected{}, kept, true},
		{inspected{in: map[string]network.EndpointResource{"box": {}}}, kept, false},
		{inspected{err: errors.New("no engine")}, kept, false},
		{inspected{}, errors.New("remove network dfcedc2b2803: no engine"), false},
		{inspected{}, nil, false},
	} {
		if got := miscounted(t.Context(), c.engine, "dfcedc2b2803", c.err); got != c.want {
			t.Errorf("%v, %+v: %t", c.err, c.engine, got)
		}
	}
}
