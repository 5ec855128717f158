package deployment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/results"
)

// lookTimeout bounds one check of an attached service, which connects to each endpoint several times.
const lookTimeout = 40 * time.Second

// Enter checks that the attached service answers, and has nothing below the prefix. It writes nothing. The handle
// that it leaves knows what to remove at the end.
func (d *Nodes) Enter(ctx context.Context, a *plan.Attached) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var g errgroup.Group
	for _, e := range a.Endpoints {
		g.Go(func() error { return connects(ctx, d.Plan.Backend.StartTLS, e) })
	}
	if err := g.Wait(); err != nil {
		return plan.MissingError{Text: "--attach: " + oneLine(err)}
	}
	service := d.Plan.Topology.Service(cluster.Handles(d.Plan.Outside))
	guest, ok := service.(topology.Guest)
	if !ok {
		return errors.Join(fmt.Errorf("backend %s cannot be attached to", d.Plan.Backend.Name), service.Close())
	}
	err := d.identify(ctx)
	if err == nil {
		d.Partly, err = guest.Vacant(ctx)
	}
	var wrong plan.UsageError
	switch {
	case errors.As(err, &wrong):
	case errors.Is(err, topology.ErrOccupied):
		err = plan.UsageError{Text: fmt.Sprintf("--attach: prefix %q: %s; use another, or remove the keys", a.Prefix,
			oneLine(err))}
	case err != nil:
		err = plan.MissingError{Text: "--attach: " + oneLine(err)}
	}
	if err != nil {
		return errors.Join(err, service.Close())
	}
	d.Guest = service
	return nil
}

// identify rejects endpoints that are not the servers they claim to be, and notes those with several servers behind
// them.
func (d *Nodes) identify(ctx context.Context) error {
	i, ok := d.Plan.Topology.(topology.Identified)
	if !ok {
		return nil
	}
	met, err := i.Identify(ctx, cluster.Handles(d.Plan.Outside))
	if err == nil {
		if err := topology.CheckMet(met, d.Plan.Backend.Majority == backends.ByClients); err != nil {
			return plan.UsageError{Text: "--attach: " + oneLine(err)}
		}
	}
	if errors.Is(err, topology.ErrNotItself) {
		return plan.UsageError{Text: "--attach: " + oneLine(err)}
	}
	d.several = topology.Several(met)
	return err
}

// connects makes one connection to an endpoint, with a TLS handshake if that comes first.
func connects(ctx context.Context, startTLS bool, e cluster.Endpoint) error {
	d := net.Dialer{Timeout: ReachTimeout}
	conn, err := d.DialContext(ctx, "tcp", e.Address)
	if err != nil {
		return fmt.Errorf("endpoint %s does not answer: %w", e.Address, err)
	}
	if !startTLS {
		ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
		defer cancel()
		if conn, err = e.Login.TLS.Over(ctx, conn, e.Address); err != nil {
			return fmt.Errorf("endpoint %s: %w", e.Address, err)
		}
	}
	return conn.Close()
}

// ReachTimeout bounds one connect to an endpoint.
const ReachTimeout = 5 * time.Second

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// removeTimeout bounds the removal of what a run wrote into an attached service.
const removeTimeout = 30 * time.Second

// Leave removes what the run wrote, and reports it. All clients have ended by then.
func (d *Nodes) Leave(ctx context.Context, a *plan.Attached, tell func(string)) error {
	if d.Guest == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	said, err := d.Guest.(topology.Guest).Remove(ctx, d.Plan.Locks)
	err = errors.Join(err, d.Guest.Close())
	d.Guest = nil
	if err != nil {
		return fmt.Errorf("the keys below %s on %s could not be removed: %w", d.Plan.Prefix, a.Addresses(), err)
	}
	tell("removed from the attached service: " + said)
	if d.Cluster != nil {
		d.Cluster.Describe["attached"], d.Cluster.Describe["attached_removed"] = a.Addresses(), said
		if d.Partly != "" {
			d.Cluster.Describe["attached_looked_at"] = d.Partly
		}
		for _, m := range d.several {
			d.Cluster.Describe["attached_behind_"+m.Address] = strings.Join(m.Servers, ", ")
			d.Dir.Change(func(e *results.Env) { e.Warnings = append(e.Warnings, m.String()) })
		}
	}
	return nil
}
