package cluster

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/node"
)

// Preparer is a provider that can prepare nodes for faults before they start.
type Preparer interface {
	// Prepares returns nil if such nodes can be prepared so, else a chaos.Unavailable with the reason. image is the
	// user's replacement of the project's own image; "" if there is none. If the image does not exist yet, Open makes
	// the check instead.
	Prepares(p node.Preparation, s node.Spec, image string) error
}

// prepared has what the preparations of one node add to its start. Each provider has a table of functions that return
// one.
type prepared struct {
	// env holds "KEY=value" settings in addition to the spec's own.
	env []string
	// data is a directory of the nodes' machine that replaces the node's usual data directory; "" for the usual one.
	data string
	// disk is a block device of that machine, with ext4, that replaces the node's usual data directory; "" for the
	// usual one.
	disk string
	// before is called before each start of the node, when its container (docker) or data directory (local) exists. It
	// may be nil.
	before func(ctx context.Context) error
	// undo is called when the node has ended for good and its container is gone, and also for nodes that never started.
	// It may be nil, and may be called again after an error.
	undo func(ctx context.Context) error
}

// and joins two preparations.
func (f prepared) and(o prepared) prepared {
	f.env = append(f.env, o.env...)
	if o.data != "" {
		f.data = o.data
	}
	if o.disk != "" {
		f.disk = o.disk
	}
	f.before, f.undo = both(f.before, o.before), both(o.undo, f.undo) // undone in reverse
	return f
}

func both(first, second func(context.Context) error) func(context.Context) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context) error { return errors.Join(first(ctx), second(ctx)) }
}

// runHook calls before or undo, if not nil.
func runHook(ctx context.Context, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

// prepareNode makes a node's preparations. It returns what was done even with an error.
func prepareNode[R any](ctx context.Context, run R, n *Node,
	table map[node.Preparation]func(context.Context, R, *Node) (prepared, error),
) (prepared, error) {
	var all prepared
	for _, p := range n.spec.Preparations {
		prepare, ok := table[p]
		if !ok {
			return all, unknownPreparation(p)
		}
		one, err := prepare(ctx, run, n)
		all = all.and(one)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func unknownPreparation(p node.Preparation) error {
	return chaos.Unavailable{What: string(p), Reason: "this provider cannot prepare a node that way"}
}

// preparable returns an error for preparations that a node's own nature forbids, with any provider.
func preparable(p node.Preparation, s node.Spec) error {
	if p == wall.Preload && (s.Go || s.Image == node.SelfProgram) {
		return chaos.Unavailable{
			What:   string(p),
			Reason: "it is a Go program, which gets the time from the kernel, not from the C library; use how: vdso",
			Never:  true,
		}
	}
	if p == disk.LoopDisk && s.Role != node.Server {
		return chaos.Unavailable{What: string(p), Reason: "a " + string(s.Role) +
			" keeps no data; use power-loss on servers", Never: true}
	}
	return nil
}

// hint adds to the reason what would help.
func hint(err error, text string) error {
	if missing, ok := err.(chaos.Unavailable); ok { //nolint:errorlint // as it was made here
		missing.Reason += " " + text
		return missing
	}
	return err
}

// canLoop returns why this machine's kernel has no loop disks; nil if it may have them.
func canLoop() error {
	_, control := os.Stat("/dev/loop-control")
	known, err := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(known), "\text4\n") {
		err = errors.Join(err, errors.New("the kernel has no ext4"))
	}
	if err = errors.Join(control, err); err != nil {
		return chaos.Unavailable{What: string(disk.LoopDisk), Reason: strings.ReplaceAll(err.Error(), "\n", "; ") +
			"; it needs loop devices and ext4"}
	}
	return nil
}
