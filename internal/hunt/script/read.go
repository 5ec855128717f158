package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// Read converts a scenario to a script, such as a user's own scenario from which a hunt begins. It drops what scripts
// cannot express: separate reads and checks, observations, a second point of one visit, and repetitions beyond a
// script's most faults. It returns an error if the faults are drawn, or if the script cannot be run here.
func (s Space) Read(sc scenarios.Scenario) (Script, error) {
	if sc.Random != nil {
		return Script{}, errors.New("its faults are drawn from its seed; give the schedule of one of its runs, drawn.yaml")
	}
	r := reading{script: Script{For: sc.Run.For, Crowd: crowdOf(sc.Workload)}}
	for _, in := range sc.Chaos {
		for at := in.At; at < sc.Run.For && len(r.script.Faults) < mostFaults; at += in.Every {
			r.script.Faults = append(r.script.Faults, Injection{
				Use: in.Use, On: r.target(in.On, sc), Keys: in.Params.String(), At: at, For: in.For,
			})
			if in.Every == 0 {
				break
			}
		}
	}
	for _, st := range sc.Steps {
		r.step(st, sc)
	}
	if r.script.Crowd.Clients == 0 {
		r.script.For, r.script.End = r.now, r.after
		if n := len(sc.Steps); n > 0 && sc.Steps[n-1].Await == "" {
			r.script.For += s.TTL
		}
	}
	if ttl := sc.Backend.TTL; ttl != s.TTL && slices.Contains(s.TTLs, ttl) {
		r.script.TTL = ttl
	}
	x := s.fit(r.script, briefest)
	if err := s.Check(x); err != nil {
		return x, fmt.Errorf("its script cannot be run here: %w", err)
	}
	return x, nil
}

// crowdOf returns the crowd that a workload describes.
func crowdOf(w scenarios.Workload) Crowd {
	if w.Use == "" {
		return Crowd{}
	}
	c := Crowd{Clients: w.Clients, Users: w.Users, Locks: 1, Renew: w.Renew}
	if w.Timeout != scenarios.DefaultTimeout {
		c.Timeout = w.Timeout
	}
	var own struct {
		Locks       int
		Hold, Think time.Duration
		Shared      float64
	}
	if w.Params.Decode(&own) == nil { // else it has keys that no script has
		c.Locks, c.Hold, c.Think, c.Shared = max(own.Locks, 1), own.Hold, own.Think, own.Shared
	}
	return c
}

// reading is a scenario that is being read.
type reading struct {
	script Script
	now    time.Duration
	after  *Await          // what the next step waits for
	arms   map[string]*Arm // by user: armed, and no call read yet
}

// nominal is the assumed duration of a wait for an event.
const nominal = 10 * least

// take returns what the current step comes after.
func (r *reading) take() *Await {
	a := r.after
	r.after = nil
	return a
}

func (r *reading) step(st scenarios.Step, sc scenarios.Scenario) {
	switch {
	case st.Await == "elapsed":
		r.now += st.For
	case st.Await != "":
		r.now += nominal
		r.after = &Await{
			Kind: st.Await, Of: st.Of, User: st.User, Lock: lockNumber(st.Lock), Point: st.Point, Event: st.Event,
			Node: st.Node, Fact: st.Fact, Is: st.Is,
		}
		if st.IsNot != "" {
			r.after = nil // a script waits for only one answer
		}
	case st.Inject != "":
		r.script.Faults = append(r.script.Faults, Injection{
			Use: st.Inject, On: r.target(st.On, sc), Keys: st.Params.String(), At: r.now, As: st.As, After: r.take(),
		})
	case st.Heal != "":
		for i := range r.script.Faults {
			if in := &r.script.Faults[i]; in.As == st.Heal {
				in.For, in.Until = max(r.now-in.At, least), r.take()
			}
		}
	case st.Do != "":
		r.do(st)
	}
}

// do reads an action of a user.
func (r *reading) do(st scenarios.Step) {
	switch st.Do {
	case "arm":
		if r.arms == nil {
			r.arms = map[string]*Arm{}
		}
		r.arms[st.User] = &Arm{Point: st.Point, Die: st.Action == "die"}
		return
	case acquire:
		v := Visit{User: st.User, Lock: lockNumber(st.Lock), Shared: st.Mode == "shared", At: r.now, After: r.take()}
		if st.Within < within {
			v.Patience = st.Within
		}
		r.script.Visits = append(r.script.Visits, v)
	}
	v := r.visit(st.User)
	if v == nil {
		return
	}
	since := max(r.now-v.At, least)
	before := ""
	switch st.Do {
	case acquire, renew, release:
		before = st.Do
	case "read", "write":
		before = write
	}
	if a := r.arms[st.User]; a != nil && before != "" && v.Arm == nil {
		a.Before = before
		v.Arm = a
		delete(r.arms, st.User)
	}
	switch st.Do {
	case release, "close":
		v.Hold, v.Until, v.Close = since, r.take(), st.Do == "close"
	case renew:
		v.Renew = since
	case "read", "write":
		v.Write = since
	case "cancel":
		v.Cancel = since
	case "continue":
		if a := v.Arm; a != nil {
			a.Wait, a.Until = max(since-v.callAt(a.Before), least), r.take()
		}
	}
	if st.Do == acquire && !st.Async { // the next step waits for the answer
		r.now += nominal
		r.after = &Await{Kind: "event", Event: "acquire ok", User: st.User, Lock: v.Lock}
	}
}

// visit returns the latest visit of a user; nil if there is none.
func (r *reading) visit(user string) *Visit {
	for i := range slices.Backward(r.script.Visits) {
		if v := &r.script.Visits[i]; v.User == user {
			return v
		}
	}
	return nil
}

// target converts a target of the scenario to a script's. The number of clients may differ.
func (r *reading) target(on string, sc scenarios.Scenario) string {
	if strings.HasPrefix(on, "client-") {
		return "clients"
	}
	return on
}

// lockNumber returns the number of a workload's lock; 0 for any other lock.
func lockNumber(name string) int {
	for n := range mostLocks {
		if workloads.LockName(n) == name {
			return n
		}
	}
	return 0
}
