package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// clockStop stops a process and its monotonic clock, as the suspension of a laptop or virtual machine does on Linux. No
// process runs, CLOCK_MONOTONIC stands still, and after the resumption the wall clock is right at once. A program that
// measures its lease by the monotonic clock believes that no time has passed.
type clockStop struct{}

func clockStopKind() chaos.Kind {
	return chaos.Kind{
		Name: "clock-stop", Place: 26,
		Doc: "Stops the target and its monotonic clock until the heal, like a suspended machine. Afterwards its wall " +
			"clock is right, but its monotonic clock stays behind by that time for the rest of the run. Receipts: " +
			"every thread is in state T; after the heal, its monotonic clock against this machine's.",
		Needs:      []chaos.Capability{chaos.CanInspect, chaos.CanPause, CanClock},
		Lasting:    true,
		Stops:      true,
		StopsClock: true,
		Began:      "suspended, with its monotonic clock", Ended: "runs again, its clock behind",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := clockStop{}
			return f, decode(&f)
		},
	}
}

// pausable is a node whose process can be stopped and continued, as the fault pause does.
type pausable interface {
	chaos.Node
	chaos.Inspector
	Pause(ctx context.Context) (chaos.ProcessState, error)
	Resume(ctx context.Context) (chaos.ProcessState, error)
}

// suspended is one target.
type suspended struct {
	watched
	process pausable
	since   int64 // when it was seen stopped, so it read no clock after that; 0: not seen stopped
	pid     int
}

// Inject stops all targets concurrently and checks each of them once more.
func (clockStop) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	processes, err := chaos.Capable[pausable](s.On, chaos.CanPause)
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	of := make(map[string]pausable, len(processes))
	for _, p := range processes {
		of[p.Name()] = p
	}
	heal, receipt, err := chaos.AtOnce(s, CanClock,
		func(n shiftable, held *chaos.Hits[*suspended]) (history.Receipt, error) {
			v := &suspended{
				watched: watched{shiftable: n, service: s.Service, key: fmt.Sprintf("clock-%d", shiftKey.Add(1))},
				process: of[n.Name()],
			}
			if s.Run == nil || !s.Run.Stopped() { // a paused target does not answer
				v.mono = v.monoAhead(ctx)
			}
			return v.suspend(ctx, held)
		}, func(ctx context.Context, v *suspended) (history.Receipt, error) { return v.resume(ctx) })
	receipt.By = ByVDSO
	return heal, receipt, err
}

func (v *suspended) suspend(ctx context.Context, held *chaos.Hits[*suspended]) (history.Receipt, error) {
	before, none, err := chaos.Before(ctx, v.process, "to stop")
	if err != nil || before.Gone() {
		return none, err
	}
	v.pid = before.PID
	held.Note(v)
	sent, err := v.process.Pause(ctx)
	if err != nil {
		return history.Receipt{}, err
	}
	state, err := v.process.Inspect(ctx)
	evidence := fmt.Sprintf("%s: %s", v.Name(), state)
	switch {
	case err != nil:
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	case !state.Stopped():
		return chaos.Seen(history.NotInstalled, state.Time, evidence+": not every thread is stopped"), nil
	}
	v.since = state.Time
	return chaos.Seen(history.Installed, sent.Time, evidence), nil
}

// resume sets the monotonic clock of a stopped target back by the duration of the stop, resumes the target, and makes
// it read that clock. The clock stays behind, as on a suspended machine: catching up would be a jump ahead. The agent
// restores it after the run.
func (v *suspended) resume(ctx context.Context) (history.Receipt, error) {
	stands, before := v.ClockShifts(ctx)
	var wrong error
	if v.since != 0 {
		v.shift = Shift{Still: time.Duration(clock.Now() - v.since), How: ByVDSO}
		v.said, wrong = v.ShiftClock(ctx, v.key, v.shift)
	}
	going, err := v.process.Resume(ctx) // even if the clock could not be set back
	err = errors.Join(wrong, err)
	state, unseen := v.process.Inspect(ctx)
	switch {
	case unseen != nil:
		return history.Receipt{}, errors.Join(err, fmt.Errorf("its state could not be read: %w", unseen))
	case state.Gone() || state.PID != v.pid:
		return chaos.Seen(history.Installed, state.Time, fmt.Sprintf("%s: %s: it ended meanwhile", v.Name(), state)), nil
	case err != nil:
		return history.Receipt{Time: state.Time, Evidence: fmt.Sprintf("%s: %s", v.Name(), state)}, err
	case v.since == 0:
		return chaos.Seen(history.Installed, going.Time, fmt.Sprintf("%s: %s", v.Name(), state)), nil
	case state.Threads["T"] > 0 || state.Waits:
		return chaos.Seen(history.Indeterminate, going.Time,
			fmt.Sprintf("%s: %s: another pause of it is active, so its clock cannot be read", v.Name(), state)), nil
	}
	if before != nil {
		stands = Shifted{}
	}
	status, text := v.behind(ctx, stands.Still)
	if status == history.NotInstalled {
		err = errors.New("its monotonic clock did not stand still")
	}
	return chaos.Seen(status, going.Time, fmt.Sprintf("%s: %s; %s (%s)", v.Name(), state, text, v.said.How)), err
}

// behind makes the target read its monotonic clock and judges whether it stood still. earlier is the sum by which
// earlier stops have set it back.
func (v *suspended) behind(ctx context.Context, earlier time.Duration) (history.ReceiptStatus, string) {
	now := v.monoAhead(ctx)
	if !now.known {
		return history.Indeterminate, "its monotonic clock could not be read: " + now.how
	}
	was := monoReading{ahead: -earlier} // if it is this machine's clock
	if v.mono.known && v.mono.how == now.how {
		was = v.mono
	}
	by, room := was.ahead-now.ahead, monoTolerance+now.err+was.err
	text := fmt.Sprintf("its monotonic clock stood still for %v of %v%s", by.Round(time.Millisecond),
		v.shift.Still.Round(time.Millisecond), now.how)
	switch {
	case (by - v.shift.Still).Abs() > room:
		return history.NotInstalled, text
	case v.shift.Still <= room:
		return history.Indeterminate, text + ": this does not prove a stop"
	}
	return v.stamps(ctx, room, text)
}

// stamps checks that a client does not stamp its events with the clock that stood still: those could not be judged.
func (v *suspended) stamps(ctx context.Context, room time.Duration, text string) (history.ReceiptStatus, string) {
	at := v.clockAhead(ctx, chaos.FactStamps)
	switch {
	case !at.known:
		return history.Installed, text // a server stamps no events
	case at.ahead.Abs() > room+at.err:
		return history.NotInstalled, text + ", and so did the clock of its event stamps: this client cannot be judged by"
	}
	return history.Installed, text + fmt.Sprintf("; that of its events went on, to %v", at.ahead.Abs().Round(time.Millisecond))
}
