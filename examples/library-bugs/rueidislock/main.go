// Command rueidislock runs github.com/redis/rueidis/rueidislock on one Redis server, with the settings of the example
// in its README. With build tag defaults it uses the library's defaults. The users of a process share one Locker, as
// intended by the library.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type user struct {
	locks rueidislock.Locker
	look  rueidis.Client // reads the server's state
}

type handle struct {
	life   context.Context
	cancel context.CancelFunc
}

var (
	shared user
	once   sync.Once
	failed error
)

func main() {
	lockquake.Main("rueidislock", func(a *lockquake.Access) (user, error) {
		once.Do(func() {
			to := rueidis.ClientOption{InitAddress: a.Addresses("client"), Password: a.Password}
			shared.look, failed = rueidis.NewClient(to)
			if failed == nil {
				o := rueidislock.LockerOption{
					ClientOption: to, KeyPrefix: "lockquake", KeyValidity: a.TTL(), KeyMajority: 1,
				}
				set(&o, a)
				shared.locks, failed = rueidislock.NewLocker(o)
			}
		})
		return shared, failed
	})
}

func (u user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	until, end := context.WithCancel(context.Background()) // the grant ends with the context that the library gets
	stop := context.AfterFunc(ctx, end)
	life, cancel, err := u.locks.WithContext(until, "{lockquake:"+name+"}")
	if err != nil {
		end()
		return lockquake.Grant{}, err
	}
	if !stop() {
		cancel()
		return lockquake.Grant{}, ctx.Err()
	}
	key := "lockquake:0:{lockquake:" + name + "}"
	at := lockquake.Now()
	answers := u.look.DoMulti(ctx, u.look.B().Pttl().Key(key).Build(), u.look.B().Get().Key(key).Build())
	left, _ := answers[0].AsInt64()
	value, err := answers[1].ToString()
	if err != nil || left <= 0 {
		cancel()
		return lockquake.Grant{}, errors.New("the key is gone again")
	}
	return lockquake.Grant{
		ID: hex.EncodeToString([]byte(value)), Sent: at, Valid: at + left*int64(time.Millisecond),
		Handle: handle{life, cancel},
	}, nil
}

func (u user) Release(_ context.Context, g lockquake.Grant) error {
	g.Handle.(handle).cancel()
	return errors.New("the library does not report the fate of the key")
}

// OnLost calls lost when the library cancels the context of the grant.
func (u user) OnLost(g lockquake.Grant, lost func()) { context.AfterFunc(g.Handle.(handle).life, lost) }
