//go:build nocontext

package main

import (
	"context"

	"github.com/go-redsync/redsync/v4"
)

func lock(_ context.Context, m *redsync.Mutex) error { return m.Lock() }

func unlock(_ context.Context, m *redsync.Mutex) (bool, error) { return m.Unlock() }

func extend(_ context.Context, m *redsync.Mutex) (bool, error) { return m.Extend() }
