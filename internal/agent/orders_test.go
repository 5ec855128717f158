package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestUndoIsOwedFromBeforeTheFirstEffect(t *testing.T) {
	var s server
	r := request{Do: "test", Key: "k", Args: json.RawMessage(`1`)}
	do := func(_ context.Context, c Call) (any, error) {
		c.Stand(func(context.Context) (any, error) { return nil, nil })
		if s.standing.last() == nil {
			t.Error("nothing stands although the order said so")
		}
		return nil, nil
	}
	s.mechanisms = Mechanisms{{Orders: map[string]Handler{"test": {Do: do}}}}
	if err := s.perform(t.Context(), r, &response{}); err != nil {
		t.Fatal(err)
	}
}

func TestOrdersOfOneFaultAreUndoneTogether(t *testing.T) {
	var s standing
	var order []string
	together := make(chan string)
	for _, key := range []string{"pause", "cut-1/a", "cut-10/a", "cut-10/b", "clock"} {
		s.add(key, func(context.Context) (any, error) {
			switch key {
			case "cut-10/a": // needs the other to be under way
				together <- key
			case "cut-10/b":
				order = append(order, <-together+" and b")
			default:
				order = append(order, key)
			}
			return nil, nil
		})
	}
	s.add("cut-1/a", func(context.Context) (any, error) { order = append(order, "cut-1/a again"); return nil, nil })
	if err := s.heal(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ", "); got != "clock, cut-10/a and b, cut-1/a again, pause" {
		t.Errorf("undone: %s", got)
	}
}
