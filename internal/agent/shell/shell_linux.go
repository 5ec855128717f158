// Package shell runs commands in the namespaces of a process, with fewer capabilities than the agent has.
package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// Mechanism returns the mechanism that runs commands.
func Mechanism() agent.Mechanism {
	return agent.Mechanism{Orders: map[string]agent.Handler{
		shell.DoExec:  {Do: agent.Takes(execute)},
		shell.DoProve: {Do: agent.Takes(prove)},
	}}
}

// execute registers the undo, and then runs the command.
func execute(ctx context.Context, c agent.Call, args shell.ExecArgs) (any, error) {
	undo := args
	undo.Run = args.Undo
	shared := sharesFiles(c.Process)
	c.Stand(func(ctx context.Context) (any, error) {
		ran, err := run(ctx, c.Process, undo)
		if errors.Is(err, proc.ErrNoProcess) {
			if !shared {
				return shell.Ran{Gone: true, Time: clock.Now()}, nil
			}
			ran, err = run(ctx, proc.Process{PID: os.Getpid()}, undo) // changes in files have outlived the process
		}
		if err == nil && !ran.OK() {
			fmt.Fprintf(os.Stderr, "agent: undo %q: %s\n", undo.Run, ran)
		}
		return ran, err
	})
	return run(ctx, c.Process, args)
}

func prove(ctx context.Context, c agent.Call, args shell.ExecArgs) (any, error) {
	return run(ctx, c.Process, args)
}

// sharesFiles reports whether the process has the agent's own file system, as processes of this machine do.
func sharesFiles(p proc.Process) bool {
	own, err := os.Readlink("/proc/self/ns/mnt")
	its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", p.PID))
	return err == nil && err2 == nil && own == its
}

// run runs one command line in the namespaces of a process. It returns an error if the command could not be started.
func run(ctx context.Context, p proc.Process, args shell.ExecArgs) (ran shell.Ran, err error) {
	env, err := environment(p, args.Env)
	if err != nil {
		return ran, err
	}
	spaces, err := spacesOf(p)
	defer spaces.close()
	if err != nil {
		return ran, err
	}
	limit, cancel := context.WithTimeout(ctx, args.Within)
	defer cancel()
	said := &head{}
	cmd := exec.CommandContext(limit, "/bin/sh", "-c", args.Run)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, args.Dir, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 200 * time.Millisecond // background processes may hold its output open
	begun := clock.Now()
	proc.OnOwnThread(func() {
		if err = errors.Join(spaces.enter(), dropPower()); err == nil {
			err = cmd.Run()
		}
	})
	ran.Time = clock.Now()
	ran.Took, ran.Output, ran.More = time.Duration(ran.Time-begun), said.text(), said.more
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
	case limit.Err() != nil && cmd.Process != nil:
		ran.Ended = "killed after " + ran.Took.Round(time.Millisecond).String()
	case errors.As(err, &exit) && exit.Exited():
		ran.Code = exit.ExitCode()
	case errors.As(err, &exit):
		ran.Ended = exit.String()
	default:
		return ran, fmt.Errorf("run /bin/sh there: %w", err)
	}
	return ran, nil
}

// environment returns the environment of the process plus more.
func environment(p proc.Process, more []string) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	if err != nil {
		return nil, proc.Absent(err)
	}
	env := slices.DeleteFunc(strings.Split(string(b), "\x00"), func(e string) bool {
		return e == "" || strings.HasPrefix(e, "LD_PRELOAD=") // the command must not get the moved wall clock
	})
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return append(env, more...), nil
}

// spaces are the namespaces of a process that differ from the agent's own, in the order in which they are entered.
type spaces []*os.File

// spacesOf opens them.
func spacesOf(p proc.Process) (spaces, error) {
	var out spaces
	for _, kind := range []string{"ipc", "uts", "net", "pid", "mnt"} { // after mnt, /proc is another
		f, err := os.Open("/proc/" + strconv.Itoa(p.PID) + "/ns/" + kind)
		if err != nil {
			return out, proc.Absent(err)
		}
		its, err := f.Stat()
		if err != nil {
			return append(out, f), err
		}
		if own, err := os.Stat("/proc/self/ns/" + kind); err == nil && os.SameFile(own, its) {
			_ = f.Close()
			continue
		}
		out = append(out, f)
	}
	if p.PID != os.Getpid() && !p.Running() { // the pid could have been reused before they were opened
		return out, proc.ErrNoProcess
	}
	return out, nil
}

// enter moves the calling thread into the namespaces; its children start there.
func (s spaces) enter() error {
	if len(s) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot change it
		return fmt.Errorf("leave the agent's root: %w", err)
	}
	for _, f := range s {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("enter %s: %w", f.Name(), err)
		}
	}
	return nil
}

func (s spaces) close() {
	for _, f := range s {
		_ = f.Close()
	}
}

// kept are the capabilities of the agent that commands keep: those of root in a container, and network configuration.
// They give no access to other processes, namespaces or the kernel.
var kept = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE,
}

// dropPower removes the agent's other capabilities from the calling thread, and so from its children.
func dropPower() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep commands from gaining privileges: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("read the agent's capabilities: %w", err)
	}
	var mask [2]uint32
	for _, c := range kept {
		mask[c/32] |= 1 << (c % 32)
	}
	for i := range has {
		has[i].Permitted &= mask[i]
		has[i].Effective, has[i].Inheritable = has[i].Permitted, 0
	}
	if err := unix.Capset(&header, &has[0]); err != nil {
		return fmt.Errorf("drop the agent's capabilities: %w", err)
	}
	return nil
}

// head keeps the beginning of the written data.
type head struct {
	b    []byte
	more int
}

// headSize is how much of a command's output is kept.
const headSize = 1000

// Write takes everything.
func (h *head) Write(b []byte) (int, error) {
	fits := min(len(b), headSize-len(h.b))
	h.b, h.more = append(h.b, b[:fits]...), h.more+len(b)-fits
	return len(b), nil
}

func (h *head) text() string { return strings.ToValidUTF8(string(h.b), "?") }
