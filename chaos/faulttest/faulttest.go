// Package faulttest has the helpers shared by the tests of the fault folders.
package faulttest

import (
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// Node is a node with a name and without any capability.
type Node string

// Name is its text.
func (n Node) Name() string { return string(n) }

// Run is a chaos.Run that answers as a test says.
type Run struct {
	chaos.Run
	Beside  func() int   // other active injections
	GoOn    func() error // continues the target; nil: it was not stopped
	Counted *chaos.Counted
}

// Others returns the number of other active injections.
func (r *Run) Others() int { return r.Beside() }

// Stopped reports whether the target was stopped.
func (r *Run) Stopped() bool { return r.GoOn != nil }

// Continue lets the target go on.
func (r *Run) Continue() error { return r.GoOn() }

// Counts takes the counter of packets.
func (r *Run) Counts(c chaos.Counted) { *r.Counted = c }

// Kind finds one of a folder's faults.
func Kind(t *testing.T, kinds []chaos.Kind, name string) chaos.Kind {
	t.Helper()
	k, ok := chaos.Lookup(kinds, name)
	if !ok {
		t.Fatalf("no fault %s", name)
	}
	return k
}

// Decoding decodes parameters in YAML, as scenarios do; "" has none.
func Decoding(params string) func(any) error {
	return func(into any) error {
		if params == "" {
			return nil
		}
		return yaml.UnmarshalWithOptions([]byte(params), into, yaml.Strict())
	}
}

// New returns one of a folder's faults, with parameters in YAML.
func New(t *testing.T, kinds []chaos.Kind, name, params string) chaos.Fault {
	t.Helper()
	f, err := Kind(t, kinds, name).New(Decoding(params))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// WantStatus fails the test unless a receipt has that status, a time and evidence.
func WantStatus(t *testing.T, what string, r history.Receipt, want history.ReceiptStatus) {
	t.Helper()
	if r.Status != want {
		t.Errorf("%s: %s (%s), want %s", what, r.Status, r.Evidence, want)
	}
	if r.Time == 0 || r.Evidence == "" {
		t.Errorf("%s: a receipt needs a time and evidence: %+v", what, r)
	}
}

// Injected injects a fault, which must be seen to act, and returns its heal.
func Injected(t *testing.T, what string, f chaos.Fault, s chaos.Scope) chaos.Heal {
	t.Helper()
	heal, r, err := f.Inject(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	WantStatus(t, what, r, history.Installed)
	return heal
}

// Healed heals a fault, which must be seen, and returns the receipt.
func Healed(t *testing.T, what string, heal chaos.Heal) history.Receipt {
	t.Helper()
	r, err := heal(t.Context())
	if err != nil {
		t.Error(err)
	}
	WantStatus(t, what, r, history.Installed)
	return r
}
