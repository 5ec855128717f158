package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// withOrder adds an order for the time of a test.
func withOrder(t *testing.T, name string, o order) {
	t.Helper()
	orders[name] = o
	t.Cleanup(func() { delete(orders, name) })
}

// TestOrders has an order done, undone by its key, and undone when the stream ends.
func TestOrders(t *testing.T) {
	undone := make(chan string, 4)
	withOrder(t, "test", func(_ context.Context, c call) (any, error) {
		name, err := decode[string](c.args)
		if err != nil {
			return nil, err
		}
		c.stand(func(context.Context) (any, error) { undone <- name; return "undone " + name, nil })
		if name == "half" {
			return nil, errors.New("half done")
		}
		return map[string]int{"pid": c.process.PID}, nil
	})
	c, ended := inMemory(t)
	ctx := t.Context()
	p, err := c.Own(ctx, sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ PID int }
	for _, key := range []string{"a", "b"} {
		if err := c.Order(ctx, Order{Do: "test", Process: p, Key: key, Args: key}, &answer); err != nil || answer.PID != p.PID {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	if err := c.Order(ctx, Order{Do: "test", Process: p, Key: "c", Args: "half"}, nil); err == nil {
		t.Error("no error from an order that was half done")
	}
	if err := c.Order(ctx, Order{Do: "test", Process: Process{PID: p.PID, Start: 1}, Key: "d", Args: "d"}, nil); err == nil {
		t.Error("an order on a process that is not of the run")
	}
	var said string
	if err := c.Undo(ctx, "a", &said); err != nil || said != "undone a" || <-undone != "a" {
		t.Errorf("undo: %q, %v", said, err)
	}
	if err := c.Undo(ctx, "a", nil); err == nil {
		t.Error("undone a second time")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if first, second := <-undone, <-undone; first != "half" || second != "b" {
		t.Errorf("undone at the end: %s, then %s", first, second)
	}
}

func TestUndoIsOwedFromBeforeTheFirstEffect(t *testing.T) {
	var s server
	r := request{Do: "test", Key: "k", Args: json.RawMessage(`1`)}
	withOrder(t, "test", func(_ context.Context, c call) (any, error) {
		c.stand(func(context.Context) (any, error) { return nil, nil })
		if s.standing.last() == nil {
			t.Error("nothing stands although the order said so")
		}
		return nil, nil
	})
	if err := s.perform(t.Context(), r, &response{}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatBelongsToOneFaultIsUndoneAtOnce(t *testing.T) {
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
