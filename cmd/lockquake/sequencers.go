package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// asker is a lock service's connection of its own for those who check sequencers.
type asker struct {
	lock.SequencerChecker
	locker lock.Locker
	conn   backends.Connection
}

// Close frees both.
func (a asker) Close() error { return errors.Join(a.locker.Close(), a.conn.Close()) }

// sequencers connects to the lock service that access names, as a client of it does.
func sequencers(ctx context.Context, access json.RawMessage) (resource.SequencerChecker, error) {
	var a backends.Access
	if err := json.Unmarshal(access, &a); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	for _, b := range all.All() {
		l, ok := b.Lock(a.Lock)
		if b.Name != a.Backend || !ok {
			continue
		}
		conn, err := l.Dial(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", a.Backend, err)
		}
		locker, err := conn.Locker(ctx, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", a.Backend, err), conn.Close())
		}
		c, ok := locker.(lock.SequencerChecker)
		if !ok {
			return nil, errors.Join(fmt.Errorf("lock %s of %s cannot be asked about sequencers", a.Lock, a.Backend), locker.Close(), conn.Close())
		}
		return asker{c, locker, conn}, nil
	}
	return nil, fmt.Errorf("there is no lock %s of %s", a.Lock, a.Backend)
}
