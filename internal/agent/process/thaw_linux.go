package process

import (
	"context"
	"errors"
	"slices"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
)

// thawedGroup is a group that was frozen by version 1 and is thawed while every thread in it is held by ptrace. ptrace
// does not wake a thread that version 1 froze. Once thawed, the thread halts before it returns to its program. With
// version 2 a frozen thread can be held as it is.
type thawedGroup struct {
	by     *freezing
	froze  bool           // it is to be frozen again
	others []*ptrace.Held // the other processes of the group
}

// Thaw is for a ptrace.Holder.
func Thaw(ctx context.Context, h *ptrace.Held) (again func() error, err error) {
	m, err := thawHeld(ctx, h)
	return m.freezeAgain, err
}

// thawHeld thaws the process of h if version 1 froze it; else it returns nil. The returned group, even with an error,
// must be frozen again before h is released.
func thawHeld(ctx context.Context, h *ptrace.Held) (*thawedGroup, error) {
	by := frozenAt(h.PID)
	if by == nil {
		return nil, nil
	}
	by.mu.Lock()
	m := &thawedGroup{by: by}
	if frozen, _, err := by.by.state(); err != nil || !frozen {
		return m, err
	}
	members, err := membersOf(by.by.folder)
	if err != nil {
		return m, err
	}
	all := []*ptrace.Held{h}
	for _, pid := range members {
		if pid != h.PID {
			all = append(all, ptrace.New(pid))
		}
	}
	m.froze, m.others = true, all[1:]
	for _, one := range all {
		if err := one.SeizeAll(); err != nil && !errors.Is(err, proc.ErrNoProcess) {
			return m, err
		}
	}
	if err := by.by.set(ctx, false); err != nil {
		return m, err
	}
	h.Paused = true
	for _, one := range m.others {
		if err := one.HoldAll(ctx); err != nil && !errors.Is(err, proc.ErrNoProcess) {
			return m, err
		}
	}
	return m, nil
}

// frozenAt returns the active version 1 freeze of a process, if any.
func frozenAt(pid int) *freezing {
	var found *freezing
	freezings.Range(func(_, v any) bool {
		f := v.(*freezing)
		if f.by.version != 1 {
			return true
		}
		if family, err := proc.Descendants(f.process.PID); err == nil && slices.Contains(family, pid) {
			found = f
		}
		return found == nil
	})
	return found
}

// freezeAgain freezes the group again, while all its threads are still held, and releases the others.
func (m *thawedGroup) freezeAgain() error {
	if m == nil {
		return nil
	}
	defer m.by.mu.Unlock()
	var err error
	if m.froze {
		err = m.by.by.set(context.Background(), true)
	}
	for _, one := range m.others {
		err = errors.Join(err, one.Release())
	}
	return err
}
