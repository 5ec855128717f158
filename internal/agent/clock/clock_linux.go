// Package clock moves the wall clocks of processes, sets their monotonic clocks back, and makes processes read their
// own clocks.
//
// A process reads the time with a function of the vDSO, a small library that the kernel maps into it, mostly without a
// system call. The agent overwrites the beginning of that function with a jump to its own code, which makes the system
// call and adds the shift.
//
// Example: +60s for an etcd. Its threads are held. The code is written behind the vDSO's own, then the jumps, and the
// threads go on. From then on clock_gettime(CLOCK_REALTIME) is 60 s ahead, CLOCK_MONOTONIC is unchanged, and so are all
// other processes. The undo writes back the original bytes, which are those of the agent's own vDSO.
package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
)

// skew is one shift of one process's clocks.
type skew struct {
	jump  int64 // ns
	gain  int64 // in 2^-32 of a second for each second
	epoch int64 // ns since 1970 from which gain counts
	still int64 // ns for which the monotonic clock stood still
	file  string
}

// skewed has the active shifts of one process and its descendants. All methods are called with mu held.
type skewed struct {
	holder ptrace.Holder

	mu    sync.Mutex
	skews []*skew
	// patched means that the vDSO was patched, or is to be. files are the libfaketime files in use.
	patched bool
	files   []string
	written stubHeader // to the vDSO
	keeping bool
}

// maxGain bounds a drift, so that its arithmetic cannot overflow within years.
const maxGain = 100

// mover moves clocks for one agent.
type mover struct {
	holder ptrace.Holder
	skews  sync.Map // Process -> *skewed
}

// Mechanism returns the mechanism that moves clocks. It holds processes with the given holder.
func Mechanism(holder ptrace.Holder) agent.Mechanism {
	m := &mover{holder: holder}
	return agent.Mechanism{Orders: map[string]agent.Handler{
		wall.DoClock:      {Do: agent.Takes(m.doClock), Can: supported},
		wall.DoClocked:    {Do: m.doClocked},
		wall.DoReadClocks: {Do: m.doReadClocks},
		wall.DoRestore:    {Do: agent.Takes(m.restore), Machine: true},
	}}
}

// supported returns why wall clocks of processes cannot be moved on this machine; nil if they can. It checks our own
// vDSO, which is the same as that of any target.
func supported() error {
	_, err := ownVDSO()
	return err
}

// doClock shifts the wall clock of a process and of its descendants.
func (m *mover) doClock(ctx context.Context, c agent.Call, args wall.Shift) (any, error) {
	if math.IsNaN(args.Gain) || args.Gain <= -1 || args.Gain > maxGain {
		return nil, fmt.Errorf("a clock cannot gain %g s each second: want more than -1, at most %d", args.Gain,
			maxGain)
	}
	if args.File != "" && args.Gain != 0 {
		return nil, errors.New("libfaketime counts a rate from the start of each program, so its file cannot control a drifting clock")
	}
	if args.Still < 0 || args.Still != 0 && args.File != "" {
		return nil, errors.New("a monotonic clock can only be set back, and only by a patch of the vDSO")
	}
	if args.File == "" {
		if err := supported(); err != nil {
			return nil, err
		}
	}
	s := m.skewsOf(c.Process)
	one := &skew{
		jump: int64(args.Jump), gain: int64(math.Round(args.Gain * (1 << 32))), file: args.File,
		epoch: args.Since, still: int64(args.Still),
	}
	c.Stand(func(ctx context.Context) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.skews = slices.DeleteFunc(s.skews, func(k *skew) bool { return k == one })
		out, err := s.apply(ctx, c.Process)
		if errors.Is(err, proc.ErrNoProcess) {
			out.Gone, err = true, nil // its clock ended with it
		}
		return out, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.epoch == 0 {
		one.epoch = hostTime()
	}
	s.add(one)
	out, err := s.apply(ctx, c.Process)
	out.Since = one.epoch
	return out, err
}

// doClocked returns the current shifts of a process.
func (m *mover) doClocked(_ context.Context, c agent.Call) (any, error) {
	s := m.skewsOf(c.Process)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said(), nil
}

func (m *mover) skewsOf(p proc.Process) *skewed {
	found, _ := m.skews.LoadOrStore(p, &skewed{holder: m.holder})
	return found.(*skewed)
}

func (s *skewed) add(one *skew) {
	s.skews = append(s.skews, one)
	switch {
	case one.file == "":
		s.patched = true
	case !slices.Contains(s.files, one.file):
		s.files = append(s.files, one.file)
	}
}

// hostTime returns the machine's wall clock, in ns since 1970, by a system call.
func hostTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts) // cannot fail for this clock and a valid pointer
	return ts.Nano()
}

// sum adds up the shifts of one file or, with "", of the vDSO. The epoch of the sum is now.
func (s *skewed) sum(file string) stubHeader {
	h := stubHeader{Epoch: hostTime()}
	for _, k := range s.skews {
		if k.file == file {
			h.Offset += k.jump + scale(h.Epoch-k.epoch, k.gain)
			h.Rate += k.gain
			h.Mono -= k.still
		}
	}
	if !h.stands() {
		return stubHeader{}
	}
	return h
}

// said returns the current sum of all shifts.
func (s *skewed) said() wall.Clocked {
	h := s.sum("")
	out := wall.Clocked{Offset: h.Offset, Gain: float64(h.Rate) / (1 << 32), Still: -h.Mono}
	for _, f := range s.files {
		out.Offset += s.sum(f).Offset
	}
	out.Drifted = out.Offset
	for _, k := range s.skews {
		out.Drifted -= k.jump
	}
	return out
}

// scale returns ns * gain / 2^32, as the stub computes it, without overflow.
func scale(ns, gain int64) int64 {
	whole, part := ns>>32, ns&(1<<32-1)
	return whole*gain + part>>16*gain>>16 + (part&0xffff*gain)>>32
}

// apply sets the clocks of the process and its descendants to the active shifts.
func (s *skewed) apply(ctx context.Context, p proc.Process) (wall.Clocked, error) {
	out := s.said()
	if !p.Alive() {
		return out, proc.ErrNoProcess
	}
	var how []string
	for _, f := range s.files {
		if err := writeStamp(p.PID, f, s.sum(f).Offset, proc.ThisProgram()); err != nil {
			return out, err
		}
		how = append(how, preloaded(p.PID))
	}
	if s.patched {
		how = append(how, "vDSO of the process, "+runtime.GOARCH)
	}
	out.How = strings.Join(how, "; ")
	if !s.patched {
		return out, nil
	}
	s.written = s.sum("")
	var err error
	out.Processes, err = s.patchAll(ctx, p, s.written)
	if err == nil && s.written.stands() && !s.keeping {
		s.keeping = true
		go s.keep(p)
	}
	return out, err
}

// keepEvery is how often an active patch is checked.
const keepEvery = 100 * time.Millisecond

// keep restores the patch when a process loses it by an exec, as a server does that a shell or a container engine is
// just starting.
func (s *skewed) keep(p proc.Process) {
	for {
		time.Sleep(keepEvery)
		s.mu.Lock()
		if !s.written.stands() || !p.Alive() {
			s.keeping = false
			s.mu.Unlock()
			return
		}
		if lost(p.PID) {
			_, _ = s.patchAll(context.Background(), p, s.written) // retried at the next check
		}
		s.mu.Unlock()
	}
}

// lost reports whether a process has an unpatched vDSO.
func lost(pid int) bool {
	own, err := ownVDSO()
	if err != nil {
		return false
	}
	v, err := readVDSO(pid)
	if err != nil {
		return false
	}
	h, err := own.header(v.image)
	return err == nil && !h.stands()
}

// patchAll patches the process and its descendants, and returns their number. A child forked by a patched process
// inherits the patch, so patchAll repeats until there is no unpatched one.
func (s *skewed) patchAll(ctx context.Context, p proc.Process, h stubHeader) (processes int, err error) {
	for round := 0; ; round++ {
		family, err := proc.Descendants(p.PID)
		if err != nil {
			return 0, err
		}
		changed := false
		processes = 0
		for _, pid := range family {
			now, err := shiftProcess(ctx, s.holder, pid, h)
			if errors.Is(err, proc.ErrNoProcess) && pid != p.PID {
				continue
			}
			if err != nil {
				return processes, err
			}
			changed = changed || now
			processes++
		}
		if !changed {
			return processes, nil
		}
		if round == 8 {
			return processes, fmt.Errorf("pid %d starts processes faster than their clocks can be moved", p.PID)
		}
	}
}
