package agent

import (
	"context"
	"errors"
	"slices"
)

// melted is a group that was frozen by version 1 and is thawed while every thread in it is held by ptrace. A thread that version 1 froze
// sleeps where ptrace does not wake it; thawed, it comes to its halt before it goes back to its program. With version 2 a frozen
// thread can be held as it is.
type melted struct {
	by     *freezing
	froze  bool      // it is to be frozen again
	others []*halted // the processes of the group beside the one that is to be held
}

// melt thaws what holds the process of h, where something does that ptrace cannot see through; else it returns nil. What it
// returns, also beside an error, must be told to freeze again before h lets go.
func melt(ctx context.Context, h *halted) (*melted, error) {
	by := frozenAt(h.pid)
	if by == nil {
		return nil, nil
	}
	by.mu.Lock()
	m := &melted{by: by}
	if frozen, _, err := by.by.state(); err != nil || !frozen {
		return m, err
	}
	members, err := by.by.members()
	if err != nil {
		return m, err
	}
	all := []*halted{h}
	for _, pid := range members {
		if pid != h.pid {
			all = append(all, newHalted(pid))
		}
	}
	m.froze, m.others = true, all[1:]
	for _, one := range all {
		err := one.each(func(tid int) (bool, error) {
			before := len(one.seized)
			err := one.seize(tid)
			return len(one.seized) > before, err
		})
		if err != nil && !errors.Is(err, ErrNoProcess) {
			return m, err
		}
	}
	if err := by.by.set(ctx, false); err != nil {
		return m, err
	}
	h.paused = true
	for _, one := range m.others {
		if err := one.hold(ctx); err != nil && !errors.Is(err, ErrNoProcess) {
			return m, err
		}
	}
	return m, nil
}

// frozenAt returns what of version 1 freezes a process, if anything of ours does.
func frozenAt(pid int) *freezing {
	var found *freezing
	freezings.Range(func(_, v any) bool {
		f := v.(*freezing)
		if f.by.version != 1 {
			return true
		}
		if family, err := descendants(f.process.PID); err == nil && slices.Contains(family, pid) {
			found = f
		}
		return found == nil
	})
	return found
}

// freezeAgain freezes the group as it was, while all its threads are still held, and lets the others go.
func (m *melted) freezeAgain() error {
	if m == nil {
		return nil
	}
	defer m.by.mu.Unlock()
	var err error
	if m.froze {
		err = m.by.by.set(context.Background(), true)
	}
	for _, one := range m.others {
		err = errors.Join(err, one.release())
	}
	return err
}
