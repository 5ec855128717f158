package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/cluster/executable"
)

// ChooseOptions are the options of the providers among which Choose chooses.
type ChooseOptions struct {
	Self     string       // lockquake's own binary; "" as in DockerOptions
	Loopback bool         // as in LocalOptions
	Log      *slog.Logger // may be nil

	Mechanisms agent.Mechanisms // as in both
}

// Choose returns the provider of that name. For "auto" and "" that is docker if an engine answers and can run our own
// binary, else local. The reason says why in one phrase.
func Choose(ctx context.Context, want string, o ChooseOptions) (p Provider, reason string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	switch want {
	case "docker", "auto", "":
		d, err := newDocker(DockerOptions{Self: o.Self, Log: o.Log, Mechanisms: o.Mechanisms})
		if err == nil && want != "docker" {
			err = runsInImage(o.Self)
		}
		if err == nil {
			return d, fmt.Sprintf("engine %s answers at %s", d.version.Version, d.api.DaemonHost()), nil
		}
		var missing chaos.Unavailable
		if want == "docker" || !errors.As(err, &missing) {
			return nil, "", err
		}
		p, err := NewLocal(LocalOptions(o))
		return p, missing.Error(), err
	case "local":
		p, err := NewLocal(LocalOptions(o))
		return p, "asked for", err
	case "swarm":
		p, err := NewSwarm(DockerOptions{Self: o.Self, Log: o.Log, Mechanisms: o.Mechanisms})
		return p, "asked for", err
	}
	return nil, "", fmt.Errorf("unknown provider %q: there are auto, docker, local and swarm", want)
}

func runsInImage(self string) error {
	path, err := executable.Self(self)
	if err != nil {
		return err
	}
	return executable.Static(path)
}
