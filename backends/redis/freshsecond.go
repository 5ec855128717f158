package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
)

// The part of a second, by the server's own clock, in which freshSecond makes its write: later than the server, which looks at its clock ten
// times a second, notices that the second is another; and the part until which it answers, so that half a second is left.
const (
	secondBegins = 150 * time.Millisecond
	secondEnds   = 300 * time.Millisecond
	secondSpent  = 500 * time.Millisecond
)

// freshSecond waits for a moment after which nothing reaches the server's disk for half a second, although the
// server says yes. With everysec a server begins an fsync at most once in each second of its clock. So after a write
// early in a second, that second's fsync has begun or is over, and the next one begins in the next second.
func (m member) freshSecond(ctx context.Context) (string, error) {
	for {
		at, err := m.client.Time(ctx).Result()
		if err != nil {
			return "", err
		}
		if part := time.Duration(at.Nanosecond()); part < secondBegins || part > secondEnds {
			if clock.Sleep(ctx, secondBegins/10) != nil {
				return "", ctx.Err()
			}
			continue
		}
		if err := m.write(ctx, m.keys.ready()); err != nil {
			return "", err
		}
		if clock.Sleep(ctx, secondBegins/3) != nil {
			return "", ctx.Err()
		}
		syncing, err := m.ask(ctx, chaos.FactSyncing)
		if err != nil {
			return "", err
		}
		now, err := m.client.Time(ctx).Result()
		if err != nil {
			return "", err
		}
		if syncing == "false" && now.Unix() == at.Unix() && time.Duration(now.Nanosecond()) < secondSpent {
			return strconv.FormatBool(true), nil
		}
	}
}
