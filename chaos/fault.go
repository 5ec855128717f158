package chaos

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Fault is a kind of trouble with its parameters.
type Fault interface {
	// Inject makes the trouble and returns when its receipt could be taken. The Heal is never nil, even beside an
	// error: a half-done injection must be undone. It may be called once.
	Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error)
}

// Worded is a Fault whose words for a picture depend on its keys.
type Worded interface {
	// Words are what a picture says of its begin and end, as in history.Traits.
	Words() (began, ended string)
}

// Wanting is a fault that needs something of the service itself, beside what it needs of nodes.
type Wanting interface {
	// Wants returns nil where the service has it, else an Unavailable with the reason. It is asked before anything
	// starts.
	Wants(service Observer) error
}

// Kind is an entry of the list of faults.
type Kind struct {
	Name string // as scenarios write it
	// Place is its position in lists, from 1 on. Faults without one come last.
	Place int
	Doc   string // one sentence: what it does and what its receipt is
	// Needs lists the capabilities that each target must have.
	Needs []Capability
	// Lasting tells whether the trouble stands until it is healed, so that `for` makes sense. A Momentary fault is the
	// exception.
	Lasting bool
	// Syncs tells whether the fault shows only in a server that syncs to disk what it writes.
	Syncs bool
	// Servers tells whether only servers can be targets.
	Servers bool
	// Shell reports whether it runs a shell of the target's own: an image may have none.
	Shell bool
	// Single tells whether an injection must have exactly one target.
	Single bool
	// Kills tells whether the target's process ends by it.
	Kills bool
	// Counts tells whether the fault counts the packets that it meets, so that they can be waited for.
	Counts bool
	// PeerNeeds lists the capabilities that the other ends of a link fault must have.
	PeerNeeds []Capability
	// Stops tells whether the target does not run while the trouble stands, so that whoever stopped it in order to aim
	// must not continue it.
	Stops bool
	// StopsClock tells whether the target's monotonic clock stands still meanwhile, and is behind from then on.
	StopsClock bool
	// Slows tells whether the target's process gets less of a processor than it wants.
	Slows bool
	// Idle tells whether nothing happens to the target.
	Idle bool
	// AtPeers tells whether pictures show the fault at the other ends of the links, and not at its targets.
	AtPeers bool
	// Began and Ended are what a picture says of the fault's begin and end, as in history.Traits. Both empty: that it
	// begins and is healed. A fault whose words depend on its keys is a Worded.
	Began, Ended string
	// Sample is the fault's own keys as a scenario writes them, such as "{by: 1s..60s}", for a random schedule that
	// names the fault alone; a fault that needs none leaves it empty.
	Sample string
	// Try lists the keys, as YAML ("by: +60s"), with which the fault is tried out by doctor and by the tests of all
	// faults: one entry for each way in which it works. Empty: once, without keys.
	Try []string
	// New makes the fault; decode fills a struct with the scenario's own parameters, strictly.
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

// Prepared is a Fault that needs preparations, by its kind or by its parameters. Whoever starts the nodes gives them to
// every node that may be a target, and refuses the fault before anything starts where one cannot be had.
type Prepared interface {
	Preparations() []node.Preparation
}

// Excluding is a Fault that cannot be injected into nodes that were prepared for some other fault in a certain way. A
// scenario that asks for both is refused before anything starts.
type Excluding interface {
	Excludes() (p node.Preparation, why string)
}

// Damaging is a Fault that may take data away for good, by its kind or by its parameters: its targets are not as they
// were, even when it is healed.
type Damaging interface {
	Damages() bool
}

// Forgetful is a Fault whose targets come back without any of their data, by its parameters. Not every service takes
// such a server back.
type Forgetful interface {
	Forgets() bool
}

// Cutting is a Fault that may cut links, by its parameters.
type Cutting interface {
	// Cuts reports whether nothing that is sent between the targets and the other ends is answered.
	Cuts() bool
}

// Needing is a Fault that, by its parameters, needs other capabilities of its targets than its Kind lists.
type Needing interface {
	Needs() []Capability
}

// NeedsOf lists the capabilities that a fault needs of its targets.
func (k Kind) NeedsOf(f Fault) []Capability {
	if n, ok := f.(Needing); ok {
		return n.Needs()
	}
	return k.Needs
}

// Trials lists the keys with which the fault is tried out, at least one.
func (k Kind) Trials() []string {
	if len(k.Try) == 0 {
		return []string{""}
	}
	return k.Try
}

// Momentary is a Fault of a lasting Kind that, with some parameters, is over once it is injected.
type Momentary interface {
	Momentary() bool
}

// Lasts reports whether the trouble stands until it is healed.
func (k Kind) Lasts(f Fault) bool {
	m, ok := f.(Momentary)
	return k.Lasting && !(ok && m.Momentary())
}

// Traits are what a fault of this kind does, for the record of an injection.
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

// Fits tells whether an entry of a schedule makes sense for this fault.
func (k Kind) Fits(f Fault, e Entry) error {
	switch lasts := k.Lasts(f); {
	case !lasts && e.For > 0:
		return fmt.Errorf("%s is over when it is done; leave out for", k.Name)
	case lasts && e.Every > 0 && e.For == 0:
		return fmt.Errorf("%s stands until it is healed, so it cannot come again every %s; write for as well", k.Name,
			e.Every)
	}
	return nil
}

// Aim says why this fault can never be injected on these targets, and what would be right instead, or "".
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
