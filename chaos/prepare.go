package chaos

// Preparation is something that a node must be given before it starts, so that a fault can be injected into it later. Like a
// Capability, each belongs to a provider, which has it or says why not.
type Preparation string

// The preparations.
const (
	// Preload has the node's programs load libfaketime before the C library, so that their wall clock can be told to them. It
	// reaches programs that ask the C library for the time: C and the JVM, not Go.
	Preload Preparation = "preload"
)

// Prepared is a Fault that needs preparations, by its kind or by its parameters. Whoever starts the nodes gives them to every node
// that may be a target, and refuses the fault before anything starts where one cannot be had.
type Prepared interface {
	Preparations() []Preparation
}

// Excluding is a Fault that cannot be injected into nodes that were prepared for some other fault in a certain way. A scenario that
// asks for both is refused before anything starts.
type Excluding interface {
	Excludes() (p Preparation, why string)
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
