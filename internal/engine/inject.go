package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
)

// maxMisses is how often a holder may slip away before an injection gives up.
const maxMisses = 20

// silence is how long a stopped client's stream must bring nothing before it counts as read to its end.
const silence = 20 * time.Millisecond

// inject resolves the target and injects the fault. Its record is complete but for the heal; an injection that did not
// come to pass has a receipt that says so.
func (r *run) inject(ctx context.Context, inj injection, planned int64) *history.Fault {
	f := r.newFault(inj, planned)
	var receipt history.Receipt
	var err error
	if name, ok := inj.selector.Holder(); ok {
		receipt, err = r.injectHolder(ctx, inj, f, name)
	} else {
		receipt, err = r.injectNodes(ctx, inj, f)
	}
	if err != nil {
		if receipt.Status == "" || receipt.Status == history.Installed {
			receipt.Status = history.NotInstalled
		}
		receipt.Evidence = strings.TrimPrefix(receipt.Evidence+"; ", "; ") + err.Error()
	}
	if receipt.Time == 0 {
		receipt.Time = clock.Now()
	}
	r.mu.Lock()
	f.Receipt = receipt
	if receipt.Status == history.Installed && f.Bit == 0 {
		f.Bit = receipt.Time
	}
	r.mu.Unlock()
	r.writeFaults()
	r.progress(fmt.Sprintf("%s on %s: %s", f.Name, f.Target, receipt.Status))
	if !inj.kind.Lasting {
		r.healOne(f) // it is over: nothing stands until the end
	}
	return f
}

func (r *run) newFault(inj injection, planned int64) *history.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &history.Fault{
		ID: len(r.faults) + 1, Entry: inj.entry, Name: inj.kind.Name, As: inj.as, Selector: inj.on, Target: inj.on, Params: inj.params,
		Planned: planned, Start: clock.Now(),
	}
	r.faults, r.injected = append(r.faults, f), append(r.injected, inj)
	return f
}

// target notes what a selector resolved to.
func (r *run) target(f *history.Fault, nodes []chaos.Node, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Targets = nil
	for _, n := range nodes {
		f.Targets = append(f.Targets, n.Name())
	}
	f.Target = strings.Join(f.Targets, ", ")
	if text != "" {
		f.Target += " (" + text + ")"
	}
	f.Start = clock.Now()
}

func (r *run) injectNodes(ctx context.Context, inj injection, f *history.Fault) (history.Receipt, error) {
	nodes, err := r.resolve(ctx, inj.selector, f.ID)
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, err
	}
	r.target(f, nodes, "")
	limit := chaos.Limit(nodes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	scope, err := r.scope(ctx, inj, f, nodes)
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, err
	}
	if why := r.promised(f, scope); why != "" {
		return history.Receipt{Status: history.NotMade, Evidence: why}, nil
	}
	r.followLead(ctx, inj, f, scope)
	heal, receipt, err := inj.fault.Inject(ctx, scope)
	r.heals.Push(f.ID, heal, limit)
	return receipt, err
}

// resolve picks the nodes of a selector as they are now.
func (r *run) resolve(ctx context.Context, sel chaos.Selector, id int) ([]chaos.Node, error) {
	return sel.Resolve(ctx, r.view(fmt.Sprintf("selector-%d", id)))
}

// injectHolder stops the client of a user that was just granted the lock, reads its stream to the end, and injects the
// fault when the user still had the grant in hand. A holder that had begun to release is a miss: it is continued,
// counted, and the next grant is tried.
func (r *run) injectHolder(ctx context.Context, inj injection, f *history.Fault, name string) (history.Receipt, error) {
	number := -1
	if name != "" {
		if number = slices.Index(r.plan.locks, name); number < 0 {
			return history.Receipt{Status: history.NotInstalled}, fmt.Errorf("there is no lock %q", name)
		}
	}
	next := r.live.nextGrant
	if r.plan.workload == nil {
		next = r.live.anyHold
	}
	for f.Misses < maxMisses {
		h, err := next(ctx, number)
		if err != nil {
			return history.Receipt{Status: history.NotInstalled}, fmt.Errorf("no holder was seen: %w", err)
		}
		receipt, held, err := r.injectOn(ctx, inj, f, h)
		if held || err != nil {
			return receipt, err
		}
		r.mu.Lock()
		f.Misses++
		r.mu.Unlock()
	}
	return history.Receipt{Status: history.NotInstalled}, fmt.Errorf("%d holders in turn had begun to release before they were stopped", f.Misses)
}

// injectOn is one attempt on one holder; held tells whether the stop came while it had the grant in hand. The stop is
// undone by a heal of its own, which stands until it was done, whatever fails.
func (r *run) injectOn(ctx context.Context, inj injection, f *history.Fault, h hold) (receipt history.Receipt, held bool, err error) {
	node := r.sessions[h.user.Client()].node
	r.mu.Lock()
	f.Grant, f.User, f.Lock = h.grant, &h.user, r.plan.locks[h.lock]
	r.mu.Unlock()
	r.target(f, []chaos.Node{node}, fmt.Sprintf("user %d, %s", h.user.Index(), f.Lock))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chaos.Timeout)
	defer cancel()
	r.stops.Push(f.ID, resume(node), chaos.Timeout)
	state, err := node.Pause(ctx)
	if err == nil {
		err = r.live.quiet(ctx, h.user.Client(), silence)
	}
	if err != nil {
		return history.Receipt{Status: history.Indeterminate}, false, errors.Join(err, r.goOn(f))
	}
	if !r.live.held(h.user, h.grant) {
		return history.Receipt{}, false, r.goOn(f)
	}
	r.mu.Lock()
	f.Bit = state.Time
	r.mu.Unlock()
	scope, err := r.scope(ctx, inj, f, []chaos.Node{node})
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, false, errors.Join(err, r.goOn(f))
	}
	if why := r.promised(f, scope); why != "" {
		r.mu.Lock()
		f.Bit = 0
		r.mu.Unlock()
		return history.Receipt{Status: history.NotMade, Evidence: why}, true, r.goOn(f)
	}
	scope.Continue = func() error { return r.goOn(f) }
	heal, receipt, err := inj.fault.Inject(ctx, scope)
	r.heals.Push(f.ID, heal, chaos.Timeout) // a client is never started again
	// A fault that stops the target holds on to it by itself: pauses of one node count.
	err = errors.Join(err, r.goOn(f))
	receipt.Evidence += fmt.Sprintf("; %v held %s by grant %d when it was stopped (%v), and its stream was silent for %v after", h.user, f.Lock, h.grant, state, silence)
	return receipt, true, err
}

// resume is the heal of a stop that aimed at a holder.
func resume(n *cluster.Node) chaos.Heal {
	return func(ctx context.Context) (history.Receipt, error) {
		if !n.Running() {
			return history.Receipt{}, nil
		}
		_, err := n.Resume(ctx)
		return history.Receipt{}, err
	}
}

// goOn undoes the stop that aimed at a holder.
func (r *run) goOn(f *history.Fault) error {
	_, err, _ := r.stops.Heal(context.Background(), f.ID)
	return err
}

// healOne heals one injection, once, and notes the receipt.
func (r *run) healOne(f *history.Fault) {
	begun := clock.Now()
	receipt, err, ok := r.heals.Heal(context.Background(), f.ID)
	if ok {
		r.healed(f, begun, receipt, err)
	}
}

// healed notes the receipt of a heal that began at ns begun.
func (r *run) healed(f *history.Fault, begun int64, receipt history.Receipt, err error) {
	if err != nil {
		receipt.Status = history.NotInstalled
		receipt.Evidence = strings.TrimPrefix(receipt.Evidence+"; ", "; ") + err.Error()
		r.unknown("heal of %s on %s: %v", f.Name, f.Target, err)
	}
	r.mu.Lock()
	f.Healed, f.Undo, f.End = &receipt, begun, clock.Now()
	if err == nil {
		delete(r.standing, f.ID)
	}
	r.mu.Unlock()
	r.leadAtHeal(f)
	r.writeFaults()
	r.progress(fmt.Sprintf("%s on %s: healed", f.Name, f.Target))
}

// writeFaults writes faults.jsonl as it is known now.
func (r *run) writeFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, f := range r.faults {
		if err := enc.Encode(f); err != nil {
			r.log.Error("faults", "error", err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, results.FileFaults), b.Bytes(), 0o644); err != nil {
		r.log.Error("faults", "error", err)
	}
}
