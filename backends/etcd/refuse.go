package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockquake/lockquake/chaos"
)

var _ chaos.WriteRefuser = (*service)(nil)

// RefuseWrites raises the alarm NOSPACE of a member, as it does by itself when its database is full. The whole cluster
// then takes no put and grants no lease; it answers reads, keeps leases alive, and deletes.
func (s *service) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	const how = "alarm NOSPACE"
	m, err := s.member(node)
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
