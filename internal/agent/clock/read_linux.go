package clock

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
)

// doReadClocks makes a process read its wall clock and its monotonic clock.
func (m *mover) doReadClocks(ctx context.Context, c agent.Call) (any, error) {
	var out wall.Readings
	err := m.holder.HoldFree(ctx, c.Process.PID, func(h *ptrace.Held) error {
		v, err := readVDSO(h.PID) // held, it cannot be in the middle of an exec
		if err != nil {
			return err
		}
		function, err := v.function("__vdso_clock_gettime")
		if err != nil {
			return err
		}
		for _, one := range []struct {
			clock int
			into  *int64
		}{{unix.CLOCK_REALTIME, &out.Wall}, {unix.CLOCK_MONOTONIC, &out.Mono}} {
			spec, err := h.Call(function, uint64(one.clock))
			if err != nil {
				return err
			}
			*one.into = int64(binary.LittleEndian.Uint64(spec[:]))*int64(time.Second) +
				int64(binary.LittleEndian.Uint64(spec[8:]))
		}
		return nil
	})
	return out, err
}

// function returns the address of a function of the vDSO in the process.
func (v vdso) function(name string) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(v.image))
	if err != nil {
		return 0, fmt.Errorf("the vDSO is not an ELF image: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("symbols of the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == name {
			return v.base + s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}
