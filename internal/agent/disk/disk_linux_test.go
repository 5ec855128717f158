package disk

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/clock"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/wait"
)

// onDiskEnv makes the test binary a shell on a disk: DEVICE:DIRECTORY.
const onDiskEnv = "on-disk:"

func init() {
	if where, ok := strings.CutPrefix(os.Getenv(agenttest.ChildEnv), onDiskEnv); ok {
		device, dir, _ := strings.Cut(where, ":")
		panic(OnDisk(device, dir, 0, []string{"/bin/sh", "sh", "-c", "echo kept >kept && sync kept && echo lost >lost && echo ready && exec sleep 60"}))
	}
	agenttest.BeChild(Mechanism(), clock.Mechanism(ptrace.Holder{Untraced: Untraced}))
}

// loopDevice is a disk of an agent in a process of its own.
type loopDevice struct {
	t      *testing.T
	agent  *agent.Client
	dir    string
	device string
}

func newLoopDevice(t *testing.T) *loopDevice {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip(err)
	}
	d := &loopDevice{t: t, dir: t.TempDir()}
	_, in, out := agenttest.Child(t, "agent")
	var err error
	if d.agent, err = agent.Connect(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	var made disk.Made
	d.order(agent.Order{Do: disk.DoDisk, Key: "disk", Args: disk.Args{Dir: d.dir, Dev: "/dev"}}, &made)
	d.device = made.Device
	d.order(agent.Order{Do: disk.DoMark, Args: disk.Use{Disk: "disk"}}, nil)
	return d
}

func (d *loopDevice) order(o agent.Order, result any) {
	d.t.Helper()
	if err := d.agent.Order(d.t.Context(), o, result); err != nil {
		d.t.Fatalf("%s: %v", o.Do, err)
	}
}

// shell starts the shell on the disk, and returns when it has written.
func (d *loopDevice) shell() proc.Process {
	d.t.Helper()
	cmd, _, out := agenttest.Child(d.t, onDiskEnv+d.device+":"+d.dir)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		d.t.Fatalf("it says %q, %v", line, err)
	}
	p, err := d.agent.Own(d.t.Context(), cmd.Process.Pid, true)
	if err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	d.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended }) // before its starter waits for it too
	return p
}

// backing returns the file behind the device; "" if there is none.
func (d *loopDevice) backing() string {
	b, _ := os.ReadFile("/sys/block/" + strings.TrimPrefix(d.device, "/dev/") + "/loop/backing_file")
	return string(b)
}

func TestPowerLossDropsUnsyncedData(t *testing.T) {
	d := newLoopDevice(t)
	p := d.shell()
	var before, after disk.Seen
	var cut disk.Cut
	d.order(agent.Order{Do: disk.DoCut, Process: p, Args: disk.Use{Disk: "disk", Dir: d.dir}}, &cut)
	d.order(agent.Order{Do: disk.DoLook, Args: disk.Use{Disk: "disk"}}, &after)
	if !after.Synced || after.Unsynced || cut.Killed < cut.Shut || cut.Shut == 0 {
		t.Errorf("cut %+v, found %+v", cut, after)
	}
	if want := int64(markerLength + len("kept\n")); after.Listing.Bytes != want {
		t.Errorf("%d bytes are left, want the %d that were synced", after.Listing.Bytes, want)
	}
	// The same without a power loss: a kill alone loses nothing.
	p = d.shell()
	if err := d.agent.Signal(t.Context(), p, "KILL"); err != nil {
		t.Fatal(err)
	}
	d.order(agent.Order{Do: disk.DoLook, Args: disk.Use{Disk: "disk"}}, &before)
	if want := after.Listing.Bytes + int64(len("lost\n")); before.Listing.Bytes != want {
		t.Errorf("%d bytes are left by a kill, want all %d", before.Listing.Bytes, want)
	}
}

func TestADiskGoesWithItsAgent(t *testing.T) {
	d := newLoopDevice(t)
	file := d.backing()
	if !strings.Contains(file, "(deleted)") {
		t.Fatalf("the file behind %s is %q", d.device, file)
	}
	p := d.shell()
	_ = d.agent.Close() // which kills the shell
	wait.Until(t, agenttest.Patience, "the disk and the shell are gone", func() bool { return d.backing() != file && !p.Alive() })
}
