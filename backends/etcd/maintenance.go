package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/chaos"
)

var (
	_ chaos.WriteRefuser = maintenance{}
	_ chaos.Compactor    = maintenance{}
)

// maintenance is what faults may ask members to do, as an operator could.
type maintenance struct{ service *service }

// Capabilities returns the parts of the service that faults may use.
func (s *service) Capabilities() []any { return []any{maintenance{s}} }

// RefuseWrites raises the NOSPACE alarm of a member, as it does by itself when its database is full. The whole
// cluster then rejects puts and lease grants; it still answers reads, keeps leases alive, and deletes.
func (x maintenance) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	const how = "alarm NOSPACE"
	m, err := x.service.member(node)
	if err != nil {
		return how, func(context.Context) error { return nil }, err
	}
	alarm := func(ctx context.Context, action pb.AlarmRequest_AlarmAction) error {
		st, err := m.client.Status(ctx, m.addr)
		if err != nil {
			return err
		}
		_, err = pb.NewMaintenanceClient(m.client.ActiveConnection()).Alarm(ctx,
			&pb.AlarmRequest{Action: action, MemberID: st.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
		return err
	}
	allow := func(ctx context.Context) error { return alarm(ctx, pb.AlarmRequest_DEACTIVATE) }
	return how, allow, alarm(ctx, pb.AlarmRequest_ACTIVATE)
}

// Compact makes the cluster forget all revisions before the current one, and waits until the member has dropped them.
func (x maintenance) Compact(ctx context.Context, node string) (int64, error) {
	m, err := x.service.member(node)
	if err != nil {
		return 0, err
	}
	st, err := m.client.Status(ctx, m.addr)
	if err != nil {
		return 0, fmt.Errorf("status: %w", err)
	}
	revision := st.Header.Revision
	_, err = m.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return 0, fmt.Errorf("nothing was written since revision %d: %w", revision, err)
	}
	return revision, err
}

// Forgotten tries to read at a compacted revision.
func (x maintenance) Forgotten(ctx context.Context, node string, revision int64) (string, error) {
	m, err := x.service.member(node)
	if err != nil {
		return "", err
	}
	_, err = m.client.Get(ctx, x.service.keys.ready(), clientv3.WithRev(revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return err.Error(), nil
	}
	return "", err
}
