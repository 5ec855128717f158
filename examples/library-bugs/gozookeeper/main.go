// Command gozookeeper runs the Lock of github.com/samuel/go-zookeeper, the predecessor of go-zookeeper/zk. Each user
// has its own session.
package main

import (
	"context"
	"encoding/json"
	"reflect"

	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/samuel/go-zookeeper/zk"
)

type user struct {
	access *lockquake.Access
	conn   *zk.Conn
}

func main() {
	lockquake.Main("go-zookeeper Lock", func(a *lockquake.Access) (*user, error) {
		c, _, err := zk.Connect(a.Addresses("client"), a.TTL())
		return &user{a, c}, err
	})
}

// Acquire gives up when its time is over, because the library's Lock takes no context. The answer to a read renews the
// session, less the time for which a server answers without its leader.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	sent := lockquake.Now()
	l := zk.NewLock(u.conn, "/lockquake/"+name, zk.WorldACL(zk.PermAll))
	if err := lockquake.Within(ctx, l.Lock, l.Unlock); err != nil {
		return lockquake.Grant{}, err
	}
	path := reflect.ValueOf(l).Elem().FieldByName("lockPath").String()
	g := lockquake.Grant{ID: path, Sent: sent, Valid: lockquake.Unknown, Handle: l}
	asked := lockquake.Now()
	if exists, stat, err := u.conn.Exists(path); err == nil && exists {
		var p struct {
			Lag int64 `json:"lag_ns"`
		}
		_ = json.Unmarshal(u.access.Params, &p) // the lag is 0 without it
		g.Token, g.Valid = uint64(stat.Czxid), u.access.Valid(asked)-p.Lag
	}
	return g, nil
}

func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	return g.Handle.(*zk.Lock).Unlock()
}
