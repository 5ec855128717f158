package clock

import (
	"context"
	"errors"
	"fmt"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// restore restores the wall clocks that a dead agent had moved, of these processes and their descendants, and lists
// them. The patch of a vDSO describes itself, and the original is the same in every process, so nothing was saved.
// Processes that this one may not read are skipped.
func (m *mover) restore(ctx context.Context, c agent.Call, args wall.RestoreArgs) (any, error) {
	if len(args.Files) != len(c.With) {
		return nil, fmt.Errorf("%d files for %d processes", len(args.Files), len(c.With))
	}
	restored, errs := []string{}, []error{}
	note := func(pid int, how string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("restore the clock of pid %d: %w", pid, err))
		} else if how != "" {
			restored = append(restored, fmt.Sprintf("clock of pid %d (%s)", pid, how))
		}
	}
	for i, p := range c.With {
		family, err := proc.Descendants(p.PID)
		if err != nil {
			return restored, errors.Join(append(errs, err)...)
		}
		if ctx.Err() != nil || !p.Alive() {
			continue
		}
		how, err := restoreStamp(p.PID, args.Files[i])
		note(p.PID, how, err)
		for _, pid := range family {
			how, err := m.restoreVDSO(ctx, pid)
			note(pid, how, err)
		}
	}
	return restored, errors.Join(append(errs, ctx.Err())...)
}

// restoreStamp checks the libfaketime file of a process. how says what it restored; "" if nothing.
func restoreStamp(pid int, file string) (how string, err error) {
	if file == "" {
		return "", nil
	}
	by, stands := readStamp(pid, file)
	if !stands || !by.Dead() {
		return "", nil
	}
	return file, writeStamp(pid, file, 0, proc.ThisProgram())
}

// restoreVDSO checks the vDSO of one process. how says what it restored; "" if nothing.
func (m *mover) restoreVDSO(ctx context.Context, pid int) (how string, err error) {
	own, err := ownVDSO()
	if err != nil {
		return "", nil //nolint:nilerr // no clock can be moved in this way here
	}
	v, err := readVDSO(pid)
	if err != nil {
		return "", nil //nolint:nilerr // it has ended, has none, or may not be read
	}
	h, err := own.header(v.image)
	if err != nil || !h.stands() || !h.By.Dead() {
		return "", nil //nolint:nilerr // it was patched by another program
	}
	if _, err := shiftProcess(ctx, m.holder, pid, stubHeader{}); err != nil && !errors.Is(err, proc.ErrNoProcess) {
		return "", err
	}
	return "vDSO", nil
}
