//go:build !nocontext

package main

import (
	"context"

	"github.com/go-redsync/redsync/v4"
)

func lock(ctx context.Context, m *redsync.Mutex) error { return m.LockContext(ctx) }

func unlock(ctx context.Context, m *redsync.Mutex) (bool, error) { return m.UnlockContext(ctx) }

func extend(ctx context.Context, m *redsync.Mutex) (bool, error) { return m.ExtendContext(ctx) }
