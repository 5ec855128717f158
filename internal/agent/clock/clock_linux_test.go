package clock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/node"
)

// clockChildEnv makes the test binary a program that prints its clocks, one line for each line of input.
const clockChildEnv = "LOCKQUAKE_CLOCK_TEST_CHILD"

func init() {
	if os.Getenv(clockChildEnv) != "" {
		clockChild()
		os.Exit(0)
	}
}

// clockChild answers "spin" by reading the clock in all threads, and "fork" by starting a child. Anything else it
// answers with its wall clock, its runtime by the monotonic clock, how often that went back, and the number of
// readings.
func clockChild() {
	start := time.Now()
	var back, reads atomic.Int64
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "spin" {
			for range 4 {
				go func() {
					last := time.Since(start)
					for {
						now := time.Since(start) // and a signal now and then, from the scheduler
						if now < last || now > last+30*time.Second {
							back.Add(1)
						}
						last = now
						_ = time.Now()
						reads.Add(1)
					}
				}()
			}
		}
		now := time.Now()
		fmt.Println(now.UnixNano(), now.Sub(start).Nanoseconds(), back.Load(), reads.Load())
	}
}

// teller is a process that prints its clocks.
type teller struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func newTeller(t *testing.T, cmd *exec.Cmd) *teller {
	t.Helper()
	in, out := agenttest.Start(t, cmd)
	return &teller{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

func goTeller(t *testing.T) *teller {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clockChildEnv+"=1")
	return newTeller(t, cmd)
}

func (c *teller) ask(what string) []int64 {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("it says %q: %v", line, err)
	}
	var got []int64
	for _, word := range strings.Fields(line) {
		var n int64
		if _, err := fmt.Sscan(word, &n); err != nil {
			c.t.Fatalf("it says %q: %v", line, err)
		}
		got = append(got, n)
	}
	return got
}

// wantAhead checks that the wall clock is ahead of the machine's by want, within the two readings around it.
func (c *teller) wantAhead(what string, want time.Duration) {
	c.t.Helper()
	before := hostTime()
	got := c.ask("")
	after := hostTime()
	if low, high := before+int64(want), after+int64(want); got[0] < low || got[0] > high {
		c.t.Errorf("%s: the wall clock is ahead by %v to %v, want %v", what, time.Duration(got[0]-after), time.Duration(got[0]-before), want)
	}
	if len(got) > 2 && got[2] != 0 {
		c.t.Errorf("%s: the monotonic clock jumped %d times", what, got[2])
	}
}

// clockAgent is an agent that owns a process.
func clockAgent(t *testing.T, pid int) (*agent.Client, proc.Process) {
	t.Helper()
	if err := supported(); err != nil {
		t.Skip(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root may trace the processes of others, and on many machines any process")
	}
	c, _ := agenttest.Serve(t, Mechanism(ptrace.Holder{}))
	p, err := c.Own(t.Context(), pid, false)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

func shiftBy(t *testing.T, c *agent.Client, p proc.Process, key string, a wall.Shift) wall.Clocked {
	t.Helper()
	var out wall.Clocked
	if err := c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: key, Args: a}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func unshift(t *testing.T, c *agent.Client, key string) {
	t.Helper()
	if err := c.Undo(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
}

// wantPristine checks that no function of the vDSO jumps into the stub any more.
func wantPristine(t *testing.T, pid int) {
	t.Helper()
	own, err := ownVDSO()
	if err != nil {
		t.Fatal(err)
	}
	v, err := readVDSO(pid)
	if err != nil {
		t.Fatal(err)
	}
	for i := range own.stub {
		if v.image[i] != own.image[i] {
			t.Fatalf("byte %#x of the vDSO is %#x, was %#x", i, v.image[i], own.image[i])
		}
	}
}

// TestJumpsForthAndBack moves a Go program's clock, twice over, and undoes it in another order.
func TestJumpsForthAndBack(t *testing.T) {
	child := goTeller(t)
	child.wantAhead("at first", 0)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	mono := child.ask("")
	if got := shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Minute)}); got.Processes != 1 || got.Offset != int64(time.Minute) {
		t.Errorf("the agent says %+v", got)
	}
	child.wantAhead("+1m", time.Minute)
	shiftBy(t, c, p, "b", wall.Shift{Jump: time.Duration(-90*time.Minute - 123456789)})
	child.wantAhead("and -1h30m0.123456789s", -89*time.Minute-123456789)
	unshift(t, c, "a")
	child.wantAhead("without the first", -90*time.Minute-123456789)
	if got := child.ask(""); got[1] < mono[1] || got[1] > mono[1]+int64(30*time.Second) {
		t.Errorf("its monotonic clock went from %v to %v", mono[1], got[1])
	}
	unshift(t, c, "b")
	child.wantAhead("healed", 0)
	wantPristine(t, p.PID)
	shiftBy(t, c, p, "c", wall.Shift{Jump: time.Duration(time.Hour)})
	child.wantAhead("again", time.Hour)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	child.wantAhead("when the control stream has ended", 0)
	wantPristine(t, p.PID)
}

// TestDrifts runs a clock fast and slow: the gain is bounded by when the shift began and ended.
func TestDrifts(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	for _, gain := range []float64{0.25, -0.5, 10} {
		from := hostTime()
		shiftBy(t, c, p, "d", wall.Shift{Gain: gain})
		to := hostTime()
		var last int64
		for range 200 {
			before := hostTime()
			got := child.ask("")[0]
			after := hostTime()
			at := func(host, epoch int64) float64 { return float64(host) + gain*float64(host-epoch) }
			low, high := at(before, to), at(after, from)
			if gain < 0 {
				low, high = at(before, from), at(after, to)
			}
			if f := float64(got); f < low-1000 || f > high+1000 { // a float64 of now is exact to 256 ns
				t.Fatalf("gain %g: %v before the earliest, %v after the latest that it can be", gain, low-f, f-high)
			}
			if got < last {
				t.Fatalf("gain %g: the clock went back by %v", gain, time.Duration(last-got))
			}
			last = got
		}
		unshift(t, c, "d")
		child.wantAhead("healed", 0)
	}
}

// TestUnderLoad moves the clock of a program whose threads do nothing but read it.
func TestUnderLoad(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	child.ask("spin")
	for i := range 8 {
		by, from := time.Duration(i+1)*time.Minute, hostTime()
		shiftBy(t, c, p, "j", wall.Shift{Jump: time.Duration(by)})
		shiftBy(t, c, p, "d", wall.Shift{Gain: 0.5})
		before := hostTime()
		got := child.ask("")
		after := hostTime()
		gained := (after-from)/2 + 1000 // at most, with what a float64 rounds
		if low, high := before+int64(by), after+int64(by)+gained; got[0] < low || got[0] > high || got[2] != 0 {
			t.Fatalf("round %d: %v before the earliest, %v after the latest that it can be; the monotonic clock jumped %d times",
				i, time.Duration(low-got[0]), time.Duration(got[0]-high), got[2])
		}
		unshift(t, c, "j")
		unshift(t, c, "d")
		child.wantAhead("healed", 0)
	}
	if got := child.ask(""); got[3] == 0 {
		t.Error("its readers did not read")
	}
}

// TestLibc moves the clock of a C program, which asks for it in two more ways.
func TestLibc(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip(err)
	}
	child := newTeller(t, exec.Command("perl", "-MTime::HiRes=gettimeofday,clock_gettime,CLOCK_MONOTONIC", "-e",
		`$|=1; while (<STDIN>) { my @t = gettimeofday; printf "%d%06d000 %d %d\n", @t, time, 1e9*clock_gettime(CLOCK_MONOTONIC) }`))
	c, p := clockAgent(t, child.cmd.Process.Pid)
	for _, jump := range []time.Duration{0, 90 * time.Second, -time.Hour - 500*time.Millisecond} {
		if jump != 0 {
			shiftBy(t, c, p, "k", wall.Shift{Jump: time.Duration(jump)})
		}
		before := hostTime()
		got := child.ask("")
		after := hostTime()
		low, high := before+int64(jump), after+int64(jump)
		if got[0] < low-1000 || got[0] > high {
			t.Errorf("%v: gettimeofday says %d, want %d to %d", jump, got[0], low, high)
		}
		// The coarse clock lags by a tick, and longer while the CPU that updates it is stalled.
		const lag = int64(2 * time.Second)
		if s := got[1]; s < (low-lag)/1e9 || s > high/1e9 {
			t.Errorf("%v: time says %d, want %d to %d", jump, s, low/1e9, high/1e9)
		}
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		if d := time.Duration(ts.Nano() - got[2]).Abs(); d > 30*time.Second {
			t.Errorf("%v: its monotonic clock is off by %v", jump, d)
		}
		if jump != 0 {
			unshift(t, c, "k")
		}
	}
}

// TestShiftDuringAPause moves the clock of a process that is stopped, and which stays so.
func TestShiftDuringAPause(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	ctx := t.Context()
	if err := c.Signal(ctx, p, "STOP"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "stopped", agenttest.Stopped)
	shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Minute)})
	agenttest.Until(t, p, "stopped still", agenttest.Stopped)
	shiftBy(t, c, p, "b", wall.Shift{Jump: time.Duration(time.Minute)})
	unshift(t, c, "a")
	agenttest.Until(t, p, "stopped still", agenttest.Stopped)
	if err := c.Signal(ctx, p, "CONT"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "running", agenttest.Running)
	child.wantAhead("continued", time.Minute)
}

// TestStandsStill stops a process and its monotonic clock, twice, during a jump of the wall clock.
func TestStandsStill(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	ctx := t.Context()
	const still = 1500 * time.Millisecond
	shiftBy(t, c, p, "j", wall.Shift{Jump: time.Minute})
	for i, key := range []string{"a", "b"} {
		from := hostTime() // before the child reads its clock, so that the host's time has gone on by no less
		before := child.ask("")
		if err := c.Signal(ctx, p, "STOP"); err != nil {
			t.Fatal(err)
		}
		agenttest.Until(t, p, "stopped", agenttest.Stopped)
		stood := hostTime()
		time.Sleep(still)
		got := shiftBy(t, c, p, key, wall.Shift{Still: time.Duration(hostTime() - stood)})
		if got.Still < int64(still)*int64(i+1) || got.Offset != int64(time.Minute) {
			t.Errorf("the agent says %+v", got)
		}
		if err := c.Signal(ctx, p, "CONT"); err != nil {
			t.Fatal(err)
		}
		agenttest.Until(t, p, "running", agenttest.Running)
		child.wantAhead("continued", time.Minute)
		after, to := child.ask(""), hostTime()
		if went := after[1] - before[1]; went < 0 || went > to-from-int64(still) {
			t.Errorf("its monotonic clock went on by %v of %v, of which it was stopped for %v", time.Duration(went), time.Duration(to-from), still)
		}
		var read wall.Readings
		if err := c.Order(ctx, agent.Order{Do: wall.DoReadClocks, Process: p}, &read); err != nil {
			t.Fatal(err)
		}
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		if behind := ts.Nano() - read.Mono; behind < got.Still || behind > got.Still+int64(time.Second) {
			t.Errorf("a thread of it reads a clock that is behind by %v, want %v", time.Duration(behind), time.Duration(got.Still))
		}
	}
	for _, args := range []wall.Shift{{Still: -1}, {Still: 1, File: "/tmp/clock"}} {
		if err := c.Order(ctx, agent.Order{Do: wall.DoClock, Process: p, Key: "x", Args: args}, nil); err == nil {
			t.Errorf("%+v was accepted", args)
		}
	}
	if err := c.Close(); err != nil { // as when its supervisor was killed
		t.Fatal(err)
	}
	child.wantAhead("when the control stream has ended", 0)
	wantPristine(t, p.PID)
}

// TestDescendants moves the clock of a process, of an existing child, and of a later one.
func TestDescendants(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip(err)
	}
	child := newTeller(t, exec.Command("perl", "-e", `$|=1; use IO::Handle;
		sub born { pipe(my $ar, my $aw); pipe(my $br, my $bw); $_->autoflush for $aw, $bw;
			unless (fork) { close $aw; while (<$ar>) { print $bw time, "\n" } exit }
			close $ar; push @k, [$aw, $br] }
		born(); while (<STDIN>) { born() if /born/; my @s = time;
			for my $k (@k) { my ($w, $r) = @$k; print $w "\n"; my $a = <$r>; chomp $a; push @s, $a }
			print "@s\n" }`))
	c, p := clockAgent(t, child.cmd.Process.Pid)
	check := func(what string, n int, want int64) {
		t.Helper()
		got := child.ask(what)
		now := time.Now().Unix()
		if len(got) != n {
			t.Fatalf("%s: %d processes, want %d", what, len(got), n)
		}
		for i, s := range got {
			if s < now+want-20 || s > now+want+20 {
				t.Errorf("%s: process %d is ahead by %d s, want %d", what, i, s-now, want)
			}
		}
	}
	check("", 2, 0)
	if got := shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Hour)}); got.Processes != 2 {
		t.Errorf("the agent says %+v", got)
	}
	check("shifted", 2, 3600)
	check("born", 3, 3600)
	unshift(t, c, "a")
	check("healed", 3, 0)
}

// TestDeathMeanwhile undoes a shift of a process that is gone.
func TestDeathMeanwhile(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Hour)})
	if err := c.Signal(t.Context(), p, "KILL"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "dead", func(s node.State) bool { return s.PID == 0 || s.Threads["Z"] > 0 })
	unshift(t, c, "a")
	_ = child.cmd.Wait()
	err := c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: "b", Args: wall.Shift{Jump: 1}}, nil)
	if !errors.Is(err, proc.ErrNoProcess) {
		t.Errorf("a shift of the dead gives %v", err)
	}
	unshift(t, c, "b")
}

// TestRefusesAStrangersPatch: a vDSO whose bytes are not the kernel's is left alone.
func TestRefusesAStrangersPatch(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	own, err := ownVDSO()
	if err != nil {
		t.Fatal(err)
	}
	v, err := readVDSO(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	err = ptrace.Holder{}.Hold(context.Background(), p.PID, func(*ptrace.Held) error {
		return v.access(p.PID, os.O_RDWR, func(m *os.File) error {
			_, err := m.WriteAt([]byte{0x90}, int64(v.base)+int64(own.stub)-1) // in the padding, where it does no harm
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: "a", Args: wall.Shift{Jump: time.Duration(time.Hour)}}, nil)
	if err == nil || !strings.Contains(err.Error(), "does not match") {
		t.Errorf("a patch upon another's gives %v", err)
	}
	child.wantAhead("refused", 0)
}

// TestRefusesArguments: invalid shifts are rejected.
func TestRefusesArguments(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	for _, gain := range []float64{-1, -2, 101} {
		if err := c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: "a", Args: wall.Shift{Gain: gain}}, nil); err == nil {
			t.Errorf("a gain of %g was accepted", gain)
		}
	}
	child.wantAhead("refused", 0)
}

// TestScale compares the agent's arithmetic with floating point.
func TestScale(t *testing.T) {
	for _, ns := range []int64{0, 1, 1e9, 86400e9, -5e9, 1 << 40} {
		for _, gain := range []float64{0, 0.1, -0.5, 99} {
			got := scale(ns, int64(gain*(1<<32)))
			if d := float64(got) - float64(ns)*gain; d > 1e3+1e-8*float64(ns) || d < -1e3-1e-8*float64(ns) {
				t.Errorf("%d ns by %g: %d, off by %g", ns, gain, got, d)
			}
		}
	}
}
