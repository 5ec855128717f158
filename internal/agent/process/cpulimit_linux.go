package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/cgroup"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// limitedPrefix is the name prefix of the groups that an agent makes to limit a process.
const limitedPrefix = "lockquake-cpu-"

// cpuPeriod is the period of a quota in µs: the kernel's own default. leastQuota is the smallest quota that the kernel
// accepts.
const (
	cpuPeriod  = 100000
	leastQuota = 1000
)

// cpuGroup is a control group with the cpu controller, as seen from here.
type cpuGroup struct {
	version int
	folder  string
	group   string // as the kernel calls it
	top     string // where its hierarchy is mounted
}

// limiting is a process with active limits.
type limiting struct {
	at     cpuGroup
	from   *cpuGroup // the group of its processes before; nil if no group was made
	before string    // the earlier quota, as the file has it
	cpus   map[string]float64
}

// limitings has the active limits, by process.
var limitings = struct {
	sync.Mutex
	all map[proc.Process]*limiting
}{all: map[proc.Process]*limiting{}}

func limitCPU(ctx context.Context, c agent.Call, args process.CPUArgs) (any, error) {
	limitings.Lock()
	defer limitings.Unlock()
	forgetEnded(ctx)
	c.Stand(func(ctx context.Context) (any, error) { return nil, unlimitCPU(ctx, c.Process, c.Key) })
	l := limitings.all[c.Process]
	if l == nil {
		own, err := cpuGroupOf(c.Process.PID)
		if err != nil {
			return nil, err
		}
		l = &limiting{at: own, cpus: map[string]float64{}}
		if !args.Own {
			if l.at, err = own.made(groupName(limitedPrefix, proc.ThisProgram(), c.Process.PID)); err != nil {
				return nil, err
			}
			l.from = &own
		}
		limitings.all[c.Process] = l
		if l.before, err = l.at.read(); err != nil {
			return nil, err
		}
	}
	l.cpus[c.Key] = args.CPUs
	if err := l.set(); err != nil || l.from == nil {
		return nil, err
	}
	return nil, gather(c.Process.PID, l.at.folder)
}

// set writes the lowest active limit, or the earlier quota.
func (l *limiting) set() error {
	if len(l.cpus) == 0 {
		return l.at.write(l.before)
	}
	lowest := slices.Min(slices.Collect(maps.Values(l.cpus)))
	quota, period := lowest*cpuPeriod, float64(cpuPeriod)
	if quota < leastQuota {
		quota, period = leastQuota, leastQuota/lowest
	}
	return l.at.write(fmt.Sprintf("%.0f %.0f", quota, math.Floor(period)))
}

// unlimitCPU removes one limit. It is no error if the process and its group are gone.
func unlimitCPU(ctx context.Context, p proc.Process, key string) error {
	limitings.Lock()
	defer limitings.Unlock()
	l := limitings.all[p]
	if l == nil {
		return nil
	}
	delete(l.cpus, key)
	err := l.set()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		err = nil
	}
	if len(l.cpus) > 0 {
		return err
	}
	delete(limitings.all, p)
	if l.from != nil {
		err = errors.Join(err, moveAndRemove(ctx, l.at.folder, l.from.folder))
	}
	return err
}

// forgetEnded removes the groups of processes that have ended: a successor has another.
func forgetEnded(ctx context.Context) {
	for p, l := range limitings.all {
		if p.Running() {
			continue
		}
		delete(limitings.all, p)
		if l.from != nil {
			_ = moveAndRemove(ctx, l.at.folder, l.from.folder) // `lockquake clean` removes the rest
		}
	}
}

// cpuGroupOf finds the group with which a process can be limited to a share of a CPU.
func cpuGroupOf(pid int) (cpuGroup, error) {
	seen, err := groupsOf(pid, "cpu")
	if err != nil {
		return cpuGroup{}, err
	}
	why := ""
	for _, s := range seen {
		g := cpuGroup(s)
		switch {
		case !g.controlled():
		case s.readOnly():
			why = "; " + s.group + " is mounted read-only"
		default:
			return g, nil
		}
	}
	return cpuGroup{}, errors.New("no control group with the controller cpu is available" + why)
}

// controlled reports whether the hierarchy has the controller.
func (g cpuGroup) controlled() bool {
	if g.version == 1 {
		return true
	}
	b, err := os.ReadFile(filepath.Join(g.top, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), "cpu")
}

// made makes a group. In version 1 it is below this one. Version 2 allows none below a group with processes and
// controllers, so there it is at the top.
func (g cpuGroup) made(name string) (cpuGroup, error) {
	out := cpuGroup{
		version: g.version, folder: filepath.Join(g.folder, name), group: filepath.Join(g.group, name), top: g.top,
	}
	if g.version == 2 {
		if strings.Contains(g.group, frozenPrefix) {
			return out, errors.New("it is frozen in a group of its own, which has no limits")
		}
		out.folder, out.group = filepath.Join(g.top, name), "/"+name
		if err := os.WriteFile(filepath.Join(g.top, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return out, fmt.Errorf("enable limits of control groups: %w", err)
		}
	}
	if err := os.Mkdir(out.folder, 0o755); err != nil {
		return out, fmt.Errorf("make a control group: %w", err)
	}
	return out, nil
}

// read returns the quota as "QUOTA PERIOD", as version 2 writes it; "max" is none.
func (g cpuGroup) read() (string, error) {
	if g.version == 2 {
		b, err := os.ReadFile(filepath.Join(g.folder, "cpu.max"))
		if errors.Is(err, fs.ErrNotExist) { // at the top
			return "max " + strconv.Itoa(cpuPeriod), nil
		}
		return strings.TrimSpace(string(b)), err
	}
	quota, err := os.ReadFile(filepath.Join(g.folder, "cpu.cfs_quota_us"))
	if errors.Is(err, fs.ErrNotExist) {
		return "max " + strconv.Itoa(cpuPeriod), nil
	}
	period, err2 := os.ReadFile(filepath.Join(g.folder, "cpu.cfs_period_us"))
	text := strings.TrimSpace(string(quota))
	if text == "-1" {
		text = "max"
	}
	return text + " " + strings.TrimSpace(string(period)), errors.Join(err, err2)
}

// write sets the quota.
func (g cpuGroup) write(text string) error {
	files, values := []string{"cpu.max"}, []string{text}
	if g.version == 1 {
		quota, period, _ := strings.Cut(text, " ")
		if quota == "max" {
			quota = "-1"
		}
		files, values = []string{"cpu.cfs_period_us", "cpu.cfs_quota_us"}, []string{period, quota}
	}
	for i, f := range files {
		if err := os.WriteFile(filepath.Join(g.folder, f), []byte(values[i]), 0); err != nil {
			return fmt.Errorf("write to %s of %s: %w", f, g.group, err)
		}
	}
	return nil
}

// limitedCPU asks the kernel for the limit of a process.
func limitedCPU(_ context.Context, c agent.Call) (any, error) {
	g, err := cpuGroupOf(c.Process.PID)
	if errors.Is(err, proc.ErrNoProcess) || err == nil && !c.Process.Running() {
		return process.CPULimited{Gone: true, Said: "it has ended", Time: clock.Now()}, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := g.limited()
	if err != nil {
		return out, err
	}
	limitings.Lock()
	if l := limitings.all[c.Process]; l != nil {
		out.Limits = len(l.cpus)
	}
	limitings.Unlock()
	family, err := proc.Descendants(c.Process.PID)
	for _, pid := range family {
		if its, err := cpuGroupOf(pid); err == nil && its.group != g.group {
			out.Outside++
		}
	}
	return out, err
}

// limited reads the quota and the throttling counters.
func (g cpuGroup) limited() (out process.CPULimited, err error) {
	text, err := g.read()
	if err != nil {
		return out, fmt.Errorf("read the quota of %s: %w", g.group, err)
	}
	out.Said = fmt.Sprintf("cpu quota %s µs in the group %s", strings.Replace(text, " ", " of ", 1), g.group)
	var quota, period float64
	if n, _ := fmt.Sscan(text, &quota, &period); n == 2 && period > 0 {
		out.CPUs = quota / period
	}
	stat, _ := os.ReadFile(filepath.Join(g.folder, "cpu.stat")) // a group at the top has none
	for line := range strings.Lines(string(stat)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "nr_periods":
			out.Periods = n
		case "nr_throttled":
			out.Throttled = n
		case "throttled_time": // version 1, in ns
			out.Waited = time.Duration(n)
		case "throttled_usec":
			out.Waited = time.Duration(n) * time.Microsecond
		}
	}
	out.Time = clock.Now()
	return out, nil
}

// canLimit returns why processes of this machine cannot be limited to a share of a CPU; nil if they can. It makes a
// group and removes it.
func canLimit() error {
	own, err := cpuGroupOf(os.Getpid())
	if err != nil {
		return err
	}
	try, err := own.made(groupName(limitedPrefix, proc.ThisProgram(), int(-tries.Add(1))))
	if err != nil {
		return err
	}
	return errors.Join(try.write(fmt.Sprint(leastQuota, " ", cpuPeriod)), cgroup.Remove(try.folder))
}
