package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

// noClock is the refusal of a clock fault for that reason; nil for none.
func noClock(reason error) error {
	if reason == nil {
		return nil
	}
	return chaos.Unavailable{What: string(chaos.CanClock), Reason: reason.Error()}
}

// canClock tells whether clocks can be moved on the kernel that the containers run on.
func (d *docker) canClock() error {
	d.clockOnce.Do(func() {
		if d.ourKernel() {
			d.clockErr = noClock(agent.CanClock())
			return
		}
		d.clockErr = noClock(d.askAgent())
	})
	return d.clockErr
}

// ourKernel tells whether the engine runs on the kernel that this process runs on, as far as can be seen: what a process is given
// there is then what we are given.
func (d *docker) ourKernel() bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || remote(d.api.DaemonHost()) || d.version.Arch != runtime.GOARCH {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	info, err := d.api.Info(ctx, client.InfoOptions{})
	return err == nil && info.Info.KernelVersion+"\n" == string(release)
}

// askAgent starts an agent where the engine is, for one question.
func (d *docker) askAgent() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), agentStartTimeout)
	defer cancel()
	logs, err := os.MkdirTemp("", "lockquake-agent-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(logs) }()
	run := fmt.Sprintf("ask%d", os.Getpid())
	book, err := newLogbook(logs)
	if err != nil {
		return err
	}
	r := &dockerRun{docker: d, request: Request{Run: run}, owner: self(run, false), book: book}
	image, err := d.ensureSelfImage(ctx)
	if err != nil {
		return err
	}
	r.images = map[string]string{SelfProgram: image}
	defer func() { err = errors.Join(err, r.close(context.WithoutCancel(ctx))) }()
	if err := r.startAgent(ctx); err != nil {
		return err
	}
	return r.agent.CanClock()
}
