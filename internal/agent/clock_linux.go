package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// skew is one shift of one process's wall clock.
type skew struct {
	jump  int64 // ns
	gain  int64 // in 2^-32 of a second for each second
	epoch int64 // ns since 1970 from which gain counts
}

// skewed is the shifts that stand on one process and its descendants. All methods are called with mu held.
type skewed struct {
	mu    sync.Mutex
	skews []*skew
}

// skews holds what stands on each process of the run; processes are named beyond the reuse of their pids.
var skews sync.Map // Process -> *skewed

// maxGain bounds a drift, so that its arithmetic cannot overflow within years.
const maxGain = 100

// CanClock tells why the wall clock of processes cannot be moved on this machine; nil where it can. It looks at our own vDSO,
// which is the same as that of any target.
func CanClock() error {
	_, err := ownVDSO()
	return err
}

// doClock shifts the wall clock of a process and of its descendants.
func doClock(ctx context.Context, c call) (any, error) {
	args, err := decode[ClockArgs](c.args)
	if err != nil {
		return nil, err
	}
	if math.IsNaN(args.Gain) || args.Gain <= -1 || args.Gain > maxGain {
		return nil, fmt.Errorf("a clock cannot gain %g s each second: want more than -1, at most %d", args.Gain, maxGain)
	}
	if err := CanClock(); err != nil {
		return nil, err
	}
	found, _ := skews.LoadOrStore(c.process, &skewed{})
	s := found.(*skewed)
	one := &skew{jump: args.Jump, gain: int64(math.Round(args.Gain * (1 << 32)))}
	c.stand(func(ctx context.Context) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.skews = slices.DeleteFunc(s.skews, func(k *skew) bool { return k == one })
		out, err := s.apply(ctx, c.process)
		if errors.Is(err, ErrNoProcess) {
			out.Gone, err = true, nil // its clock went with it
		}
		return out, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	one.epoch = hostTime()
	s.skews = append(s.skews, one)
	return s.apply(ctx, c.process)
}

// hostTime is the machine's wall clock, in ns since 1970, by a system call.
func hostTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts) // cannot fail for this clock and a valid pointer
	return ts.Nano()
}

// sum returns all shifts as one, which counts from now.
func (s *skewed) sum() stubHeader {
	h := stubHeader{Epoch: hostTime()}
	for _, k := range s.skews {
		h.Offset += k.jump + scale(h.Epoch-k.epoch, k.gain)
		h.Rate += k.gain
	}
	if !h.stands() {
		return stubHeader{}
	}
	return h
}

// scale is ns * gain / 2^32, as the stub reckons it, without overflow.
func scale(ns, gain int64) int64 {
	whole, part := ns>>32, ns&(1<<32-1)
	return whole*gain + part>>16*gain>>16 + (part&0xffff*gain)>>32
}

// apply shifts the process and its descendants. A child that is forked by a shifted process is born with the shift, so those that
// are found not to have it are looked for again until there is none.
func (s *skewed) apply(ctx context.Context, p Process) (Clocked, error) {
	h := s.sum()
	out := Clocked{
		Offset: h.Offset, Gain: float64(h.Rate) / (1 << 32),
		How: fmt.Sprintf("vDSO of the process, %s", runtime.GOARCH),
	}
	if !stubTried {
		out.How += ", untried on this architecture"
	}
	if !p.Alive() {
		return out, ErrNoProcess
	}
	for round := 0; ; round++ {
		family, err := descendants(p.PID)
		if err != nil {
			return out, err
		}
		changed := false
		out.Processes = 0
		for _, pid := range family {
			now, err := shiftProcess(ctx, pid, h)
			if errors.Is(err, ErrNoProcess) && pid != p.PID {
				continue
			}
			if err != nil {
				return out, err
			}
			changed = changed || now
			out.Processes++
		}
		if !changed {
			return out, nil
		}
		if round == 8 {
			return out, fmt.Errorf("pid %d starts processes faster than their clocks can be moved", p.PID)
		}
	}
}

// descendants lists a process, its children, their children and so on, parents first.
func descendants(root int) ([]int, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	children := make(map[int][]int)
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		fields, err := statFields("/proc/" + n.Name() + "/stat")
		if err != nil || len(fields) < 2 || fields[0][0] == 'Z' {
			continue // it ended
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	family := []int{root}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}
