package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Fault is a fault with its parameters, ready to be injected.
type Fault interface {
	// Inject injects the fault and returns once its receipt is taken. The Heal is never nil, even with an error: a
	// half-done injection must be undone too. It may be called once.
	Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error)
}

// Worded is a Fault whose labels in pictures depend on its keys.
type Worded interface {
	// Words returns the labels of its begin and end in pictures, as in history.Traits.
	Words() (began, ended string)
}

// Wanting is a fault that needs an ability of the service itself, besides capabilities of nodes.
type Wanting interface {
	// Wants returns nil if the service has it, else an Unavailable error. It is called before anything starts.
	Wants(service Observer) error
}

// Kind is an entry of the list of faults.
type Kind struct {
	Name string // as scenarios write it
	// Place is its position in lists, starting at 1. Faults with 0 come last.
	Place int
	Doc   string // one sentence: what it does and what its receipt is
	// Needs lists the capabilities that each target must have.
	Needs []Capability
	// Lasting reports whether the fault lasts until it is healed, so that `for` makes sense. A Momentary fault is the
	// exception.
	Lasting bool
	// Syncs reports whether the fault affects only servers that sync their writes to disk.
	Syncs bool
	// Servers reports whether only servers can be targets.
	Servers bool
	// Shell reports whether it needs a shell on the target; an image may have none.
	Shell bool
	// Single reports whether an injection must have exactly one target.
	Single bool
	// Kills reports whether it ends the target's process.
	Kills bool
	// Counts reports whether the fault counts the packets that it hits, so that a run can wait for them.
	Counts bool
	// PeerNeeds lists the capabilities that the other ends of a link fault must have.
	PeerNeeds []Capability
	// Stops reports whether the target is halted while the fault lasts. A run that paused the target to aim must then
	// leave it paused.
	Stops bool
	// StopsClock reports whether the target's monotonic clock stands still during the fault and lags behind afterwards.
	StopsClock bool
	// Slows reports whether the target's process gets less CPU time than it wants.
	Slows bool
	// Idle reports whether the fault does nothing to the target.
	Idle bool
	// AtPeers reports whether pictures show the fault at the peers of its links instead of its targets.
	AtPeers bool
	// Began and Ended are the labels of the fault's begin and end in pictures, as in history.Traits. If both are empty,
	// pictures say that it begins and is healed. A fault whose labels depend on its keys is a Worded.
	Began, Ended string
	// Sample holds the fault's own keys as a scenario writes them, such as "{by: 1s..60s}". A random schedule that
	// names only the fault uses them. A fault that needs no keys leaves it empty.
	Sample string
	// Try lists the keys, as YAML ("by: +60s"), with which doctor and the tests try the fault: one entry for each of
	// its mechanisms. If it is empty, the fault is tried once, without keys.
	Try []string
	// New returns the fault. decode fills a struct with the scenario's parameters and rejects unknown keys.
	New func(decode func(into any) error) (Fault, error)
}

// Lookup returns the fault of that name.
func Lookup(kinds []Kind, name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Prepared is a Fault that needs preparations, by its kind or its parameters. The run gives them to every node that may
// be a target. If one is not available, the fault is refused before anything starts.
type Prepared interface {
	Preparations() []node.Preparation
}

// Excluding is a Fault that cannot be injected into nodes with a certain preparation for another fault. A scenario that
// asks for both is refused before anything starts.
type Excluding interface {
	Excludes() (p node.Preparation, why string)
}

// Damaging is a Fault that may destroy data, by its kind or its parameters. A heal does not bring the data back.
type Damaging interface {
	Damages() bool
}

// Forgetful is a Fault whose targets, with these parameters, come back without any data. Not every service takes such a
// server back.
type Forgetful interface {
	Forgets() bool
}

// Cutting is a Fault that may cut links, by its parameters.
type Cutting interface {
	// Cuts reports whether no request between the targets and their peers is answered.
	Cuts() bool
}

// Needing is a Fault whose parameters decide which capabilities it needs, in place of those that its Kind lists.
type Needing interface {
	Needs() []Capability
}

// NeedsOf returns the capabilities that a fault needs of its targets.
func (k Kind) NeedsOf(f Fault) []Capability {
	if n, ok := f.(Needing); ok {
		return n.Needs()
	}
	return k.Needs
}

// Trials returns the keys to try the fault with: at least one entry.
func (k Kind) Trials() []string {
	if len(k.Try) == 0 {
		return []string{""}
	}
	return k.Try
}

// Momentary is a Fault of a lasting Kind that, with some parameters, is over once injected.
type Momentary interface {
	Momentary() bool
}

// Lasts reports whether the fault lasts until it is healed.
func (k Kind) Lasts(f Fault) bool {
	m, ok := f.(Momentary)
	return k.Lasting && !(ok && m.Momentary())
}

// Traits returns the effects of a fault of this kind, for the record of an injection.
func (k Kind) Traits(f Fault) *history.Traits {
	t := history.Traits{Kills: k.Kills, Returns: k.Kills && slices.Contains(k.Needs, CanStart), Halts: k.Stops &&
		!k.Kills, Slows: k.Slows, Idle: k.Idle, AtPeers: k.AtPeers, Began: k.Began, Ended: k.Ended}
	if w, ok := f.(Worded); ok {
		t.Began, t.Ended = w.Words()
	}
	c, ok := f.(Cutting)
	t.Cuts = ok && c.Cuts()
	return &t
}

// Fits reports whether an entry of a schedule makes sense for this fault.
func (k Kind) Fits(f Fault, e Entry) error {
	switch lasts := k.Lasts(f); {
	case !lasts && e.For > 0:
		return fmt.Errorf("%s ends by itself; omit for", k.Name)
	case lasts && e.Every > 0 && e.For == 0:
		return fmt.Errorf("%s lasts until the heal, so it cannot repeat every %s; add for", k.Name,
			e.Every)
	}
	return nil
}

// Aim returns why this fault can never be injected on these targets and what to write instead, or "".
func (k Kind) Aim(s Selector, service Observer, servers, clients []string) string {
	if why := s.NeverLed(service); why != "" {
		return why
	}
	why := s.Several(servers, clients)
	if !k.Single || why == "" {
		return ""
	}
	leader := "leader"
	if service != nil {
		if _, ok := service.Facts()[FactRole+":LOCK"]; ok {
			leader = "leader(LOCK)"
		}
	}
	return fmt.Sprintf("%s has one target at a time, and %s; write %s, one, or the name of one server", k.Name, why,
		leader)
}
