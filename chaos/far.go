package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Rest selects all nodes of the run that are not targets.
const Rest = "rest"

// Ported is a node with named ports.
type Ported interface {
	// Port returns the number of a named port.
	Port(name string) (number int, ok bool)
}

// Linked is a fault on the links between its targets and other nodes. The caller of Inject resolves those into
// Scope.Peers.
type Linked interface {
	// Far names the other nodes as the scenario did.
	Far() Names
	// Ports names the ports that the targets, and the other nodes, must have; "" where none is needed.
	Ports() (own, far PortName)
}

// OneEnded is a Linked that also works with external far ends: it is injected and observed at the targets' ends alone.
type OneEnded interface {
	// AtOwnEnd returns the capabilities that it then needs of its targets, or an Unavailable error.
	AtOwnEnd() ([]Capability, error)
}

// Names is one word or several: targets, or other ends of links.
type Names []string

// UnmarshalYAML takes one word, or a list of them.
func (n *Names) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	if err := unmarshal(&value); err != nil {
		return err
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	*n = nil
	for _, v := range list {
		word, ok := v.(string)
		if !ok || word == "" {
			return errors.New("want one name, or a list of names")
		}
		*n = append(*n, word)
	}
	if len(*n) == 0 {
		return errors.New("want one name, or a list of names")
	}
	return nil
}

// PortName is a port by its number or its name at the node.
type PortName string

// UnmarshalYAML takes a number or a word.
func (p *PortName) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	if err := unmarshal(&value); err != nil {
		return err
	}
	switch v := value.(type) {
	case uint64:
		if v >= 1 && v <= math.MaxUint16 {
			*p = PortName(strconv.FormatUint(v, 10))
			return nil
		}
	case string:
		if v != "" && strings.Trim(v, "0123456789") != "" {
			*p = PortName(v)
			return nil
		}
	}
	return errors.New("want a port: a number from 1 to 65535, or its name at the node, such as client")
}

// Number returns the port's number; ok is false when it is a name.
func (p PortName) Number() (number int, ok bool) {
	number, err := strconv.Atoi(string(p))
	return number, err == nil
}

// At returns the number of the port at a node; 0 for none.
func (p PortName) At(n Node) (int, error) {
	if p == "" {
		return 0, nil
	}
	if number, ok := p.Number(); ok {
		return number, nil
	}
	if ported, ok := As[Ported](n); ok {
		if number, ok := ported.Port(string(p)); ok {
			return number, nil
		}
	}
	return 0, fmt.Errorf("%s has no port %q", n.Name(), p)
}

// Counted counts the packets of an injection: Packets returns how many it has hit since its receipt was taken.
type Counted struct {
	Packets func(ctx context.Context) (uint64, error)
}
