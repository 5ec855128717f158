package agent

import (
	"context"
	"sync"
	"time"
)

// doEngines tells which engines can be had.
func doEngines(context.Context, call) (any, error) { return TryEngines(), nil }

// TryEngines tries each engine once, in a network namespace that is gone afterwards.
func TryEngines() Engines { return tried() }

var tried = sync.OnceValue(func() Engines {
	return Engines{
		Netem: inWords(tryNetem),
		Queue: inWords(tryQueue),
		TBF:   inWords(tryTBF),
	}
})

func inWords(try func(*namespace) error) string {
	if err := inNamespaceOfItsOwn(try); err != nil {
		return err.Error()
	}
	return ""
}

// tryQueue shapes nothing, by the rules and the queue that shape.
func tryQueue(space *namespace) error {
	return tryShaping(space, Rule{Peer: "192.0.2.1", How: Shape}, Shaping{Engine: EngineQueue, Delay: time.Millisecond})
}

func tryShaping(space *namespace, r Rule, s Shaping) error {
	f, err := newLinks().newFilter(space, "try", FilterArgs{Rules: []Rule{r}, Shaping: &s})
	if err != nil {
		return err
	}
	_, err = f.remove()
	return err
}
