package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
)

func TestHealAllIsLastInFirstOutAndGoesOn(t *testing.T) {
	s := NewStack()
	var order []int
	for i := 1; i <= 4; i++ {
		s.Push(i, func(ctx context.Context) (history.Receipt, error) {
			order = append(order, i)
			if ctx.Err() != nil {
				return history.Receipt{}, ctx.Err()
			}
			if _, ok := ctx.Deadline(); !ok {
				return history.Receipt{}, errors.New("no deadline")
			}
			if i == 3 {
				return history.Receipt{Status: history.NotInstalled}, errors.New("stuck")
			}
			return history.Receipt{Status: history.Installed}, nil
		}, Timeout)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err, ok := s.Heal(ctx, 2); err != nil || !ok {
		t.Errorf("heal 2 with a cancelled context: %v, %t", err, ok)
	}
	if _, _, ok := s.Heal(ctx, 2); ok {
		t.Error("2 was healed twice")
	}
	if _, _, ok := s.Heal(ctx, 99); ok {
		t.Error("99 was never pushed")
	}
	var got []string
	for _, h := range s.HealAll(ctx) {
		got = append(got, fmt.Sprint(h.ID, h.Receipt.Status, h.Err))
	}
	if want := "4installed<nil>,3not-installedstuck,1installed<nil>"; strings.ReplaceAll(strings.Join(got, ","), " ", "") != want {
		t.Errorf("healed %v, want %s", got, want)
	}
	if fmt.Sprint(order) != "[2 4 3 1]" {
		t.Errorf("order %v", order)
	}
	if s.Len() != 0 || s.HealAll(ctx) != nil {
		t.Error("something still stands")
	}
}

func TestAHealHasTheTimeItWasPushedWith(t *testing.T) {
	s := NewStack()
	var left time.Duration
	s.Push(1, func(ctx context.Context) (history.Receipt, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return history.Receipt{}, nil
	}, time.Hour)
	s.HealAll(t.Context())
	if left < 50*time.Minute {
		t.Errorf("the heal had %s left of its hour", left)
	}
}

func TestHealsRunOnceUnderContention(t *testing.T) { synctest.Test(t, healOnce) }

func healOnce(t *testing.T) {
	s := NewStack()
	var runs [100]atomic.Int32
	for i := range runs {
		s.Push(i, func(context.Context) (history.Receipt, error) {
			runs[i].Add(1)
			time.Sleep(time.Millisecond) // so that others come meanwhile
			return history.Receipt{}, nil
		}, Timeout)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range runs {
				_, _, _ = s.Heal(t.Context(), i)
			}
		})
		all.Go(func() { s.HealAll(t.Context()) })
	}
	all.Wait()
	for i := range runs {
		if n := runs[i].Load(); n != 1 {
			t.Errorf("heal %d ran %d times", i, n)
		}
	}
}

func TestHealAllWaitsForAHealThatHasBegun(t *testing.T) { synctest.Test(t, waitForHeal) }

func waitForHeal(t *testing.T) {
	s := NewStack()
	var runs atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.Push(1, func(context.Context) (history.Receipt, error) {
		if runs.Add(1) == 1 {
			close(begun)
		}
		<-goOn
		return history.Receipt{}, nil
	}, Timeout)
	go func() { _, _, _ = s.Heal(t.Context(), 1) }()
	<-begun
	all := make(chan []Healed)
	go func() { all <- s.HealAll(t.Context()) }()
	synctest.Wait()
	select {
	case <-all:
		t.Fatal("HealAll came back while a heal was still at work")
	default:
	}
	close(goOn)
	if got := <-all; len(got) != 0 || runs.Load() != 1 {
		t.Errorf("HealAll healed %v, which another had begun; it ran %d times", got, runs.Load())
	}
}
