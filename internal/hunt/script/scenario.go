package script

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// within is added to the time that a step waits for, and gives its deadline. It is generous, because a late step
// shows nothing, but a hunt waits that long for what never happens.
const within = 10 * time.Second

// Scenario writes a script as a scenario that `run` takes as it is. Faults at times beside a crowd become its
// schedule, all others steps. Visits are steps. If asked, the service is asked all the time what it has of the locks.
func (s Space) Scenario(x Script, asked bool) (scenarios.Scenario, error) {
	sc, err := s.built(x, asked)
	if err != nil {
		return sc, err
	}
	return scenarios.Parse(sc.Text, cmp.Or(s.Base.File, "hunt.yaml"))
}

// built returns a script's scenario as first put together.
func (s Space) built(x Script, asked bool) (scenarios.Scenario, error) {
	sets := []string{"workload=" + workload(s.Base, x), "run=" + running(s.Base, x)}
	if x.TTL > 0 {
		sets = append(sets, "backend.ttl="+x.TTL.String())
	}
	l := layOut(x)
	if len(l.schedule) > 0 {
		sets = append(sets, "chaos=["+strings.Join(l.schedule, ", ")+"]")
	} else if len(s.Base.Chaos) > 0 || s.Base.Random != nil {
		sets = append(sets, "chaos=[]")
	}
	if asked && s.Stored {
		l.ask(x)
	}
	if steps := l.steps(); len(steps) > 0 || len(s.Base.Steps) > 0 {
		sets = append(sets, "steps=["+strings.Join(steps, ", ")+"]")
	}
	return s.Base.With(sets)
}

// running returns the section of the run.
func running(base scenarios.Scenario, x Script) string {
	run := []string{"seed: " + strconv.FormatUint(max(base.Run.Seed, 1), 10), "settle: " + base.Run.Settle.String()}
	if x.Crowd.Clients > 0 {
		run = append([]string{"for: " + x.For.String()}, run...)
	}
	return flow(run)
}

// workload returns the section of the crowd. It always has the register, because visits write, too.
func workload(base scenarios.Scenario, x Script) string {
	var list []string
	add := func(key, value string) { list = append(list, key+": "+value) }
	c := x.Crowd
	if c.Clients > 0 {
		use, time := "counter", func(key string, d time.Duration) {
			if d > 0 {
				add(key, d.String())
			}
		}
		if c.Shared > 0 {
			use = "acquire-release"
		}
		add("use", use)
		add("clients", strconv.Itoa(c.Clients))
		add("users", strconv.Itoa(max(c.Users, 1)))
		if c.Locks > 1 {
			add("locks", strconv.Itoa(c.Locks))
		}
		time("hold", c.Hold)
		time("think", c.Think)
		time("timeout", c.Timeout)
		if c.Shared > 0 {
			add("shared", strconv.FormatFloat(c.Shared, 'g', 3, 64))
		}
		if c.Renew {
			add("renew", "true")
		}
		if base.Workload.Check != "" {
			add("check", base.Workload.Check)
		}
	}
	if c.Clients > 0 && c.Shared == 0 || slices.ContainsFunc(x.Visits, func(v Visit) bool { return v.Write > 0 }) {
		add("resource", "{use: register, guard: none}")
	}
	if client := base.Workload.Client; !client.IsOwn() {
		if text, err := json.Marshal(client); err == nil { // its fields are texts and lists of texts
			add("client", string(text))
		}
	}
	return flow(list)
}

func flow(pairs []string) string { return "{" + strings.Join(pairs, ", ") + "}" }

// moment is a step of a script.
type moment struct {
	at    time.Duration
	after *Await
	step  string // "": it is the end
	where slot   // the await that can replace its time
}

// slot returns the place in a script for an Await that replaces a time; nil: there is none.
type slot func(*Script) **Await

// timeline holds the steps with their times.
type timeline struct {
	schedule []string
	moments  []moment
}

// layOut lays out what a script does.
func layOut(x Script) *timeline {
	l := &timeline{}
	if x.Timed() {
		for _, in := range x.Faults {
			l.schedule = append(l.schedule, in.entry())
		}
	} else {
		for i, in := range x.Faults {
			l.inject(x, in, i)
		}
	}
	for i, v := range x.Visits {
		l.visit(x, v, i)
	}
	if x.Crowd.Clients == 0 {
		l.add(x.For, x.End, func(x *Script) **Await { return &x.End })
	}
	slices.SortStableFunc(l.moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return l
}

// Timed reports whether the faults form a schedule beside a crowd: none waits for an event, and nothing waits for one
// of them.
func (x Script) Timed() bool {
	of := false
	for _, a := range x.awaits() {
		of = of || a.Of != ""
	}
	return x.Crowd.Clients > 0 && !of && !slices.ContainsFunc(x.Faults, func(in Injection) bool {
		return in.After != nil || in.Until != nil
	})
}

// awaits lists all that a script waits for.
func (x Script) awaits() (out []*Await) {
	add := func(list ...*Await) {
		for _, a := range list {
			if a != nil {
				out = append(out, a)
			}
		}
	}
	add(x.End)
	for _, in := range x.Faults {
		add(in.After, in.Until)
	}
	for _, v := range x.Visits {
		add(v.After, v.Until)
		if v.Arm != nil {
			add(v.Arm.Until)
		}
	}
	return out
}

// askEvery is from one question to the service to the next.
const askEvery = 100 * time.Millisecond

// ask lays out questions to the service, who has which lock. They end with the steps, so those last as long as the run.
func (l *timeline) ask(x Script) {
	var asked []moment
	for i := range max(x.Crowd.Locks, 1) {
		asked = append(asked, moment{step: flow([]string{
			"observe: " + strconv.Quote(history.FactHolder+workloads.LockName(i)), "on: " + history.Service,
			"every: " + askEvery.String(), "within: " + within.String(),
		})})
	}
	l.moments = slices.Concat(asked, l.moments)
	if x.Crowd.Clients > 0 && len(l.moments) > 0 && l.moments[len(l.moments)-1].at < x.For {
		l.moments = append(l.moments, moment{at: x.For})
	}
}

// entry returns an injection as an entry of a schedule.
func (in Injection) entry() string {
	list := []string{"use: " + in.Use, "on: " + strconv.Quote(in.On), "at: " + in.At.String()}
	if in.For > 0 {
		list = append(list, "for: "+in.For.String())
	}
	if in.Keys != "" {
		list = append(list, in.Keys)
	}
	return flow(list)
}

func (l *timeline) add(at time.Duration, after *Await, where slot, pairs ...string) {
	m := moment{at: max(at, 0), after: after, where: where}
	if len(pairs) > 0 {
		m.step = flow(slices.DeleteFunc(pairs, func(p string) bool { return p == "" }))
	}
	l.moments = append(l.moments, m)
}

// inject lays out a fault as steps. If it is not healed before the end, it is healed there.
func (l *timeline) inject(x Script, in Injection, number int) {
	as := x.name(number)
	heals := func(x *Script) **Await { return &x.Faults[number].Until }
	l.add(in.At, in.After, func(x *Script) **Await { return &x.Faults[number].After }, "inject: "+in.Use, "on: "+strconv.Quote(in.On), in.Keys, "as: "+as, "within: "+within.String())
	switch {
	case in.Until != nil:
		l.add(in.At+max(in.For, 1), in.Until, heals, "heal: "+as, "within: "+within.String())
	case in.For > 0 && !x.over(in.At+in.For, nil):
		l.add(in.At+in.For, nil, heals, "heal: "+as, "within: "+within.String())
	}
}

// name returns the name by which steps call the injection with that number: the one that an Await uses, or the first
// that is free.
func (x Script) name(number int) string {
	if as := x.Faults[number].As; as != "" {
		return as
	}
	unnamed := 0
	for _, in := range x.Faults[:number] {
		unnamed += count(in.As == "")
	}
	for n := 1; ; n++ {
		as := "fault-" + strconv.Itoa(n)
		if slices.ContainsFunc(x.Faults, func(in Injection) bool { return in.As == as }) {
			continue
		}
		if unnamed == 0 {
			return as
		}
		unnamed--
	}
}

// visit lays out what a user does. It never waits for an answer: the user carries out its orders one after another.
func (l *timeline) visit(x Script, v Visit, number int) {
	lock := ""
	if v.Lock > 0 {
		lock = "lock: " + workloads.LockName(v.Lock)
	}
	rest := (max(x.For-v.At, 0) + within).String()
	do := func(at time.Duration, after *Await, where slot, verb string, more ...string) {
		if x.over(v.At+at, after) {
			return
		}
		l.arm(v, at, verb)
		pairs := append([]string{"do: " + verb, "user: " + v.User}, more...)
		l.add(v.At+at, after, where, append(pairs, "async: true", "outcome: any")...)
		if v.Arm != nil && !x.over(v.At+at+v.Arm.Wait, v.Arm.Until) {
			l.proceed(v, at, verb, number)
		}
	}
	patience := rest
	if v.Patience > 0 {
		patience = v.Patience.String()
	}
	mode := ""
	if v.Shared {
		mode = "mode: shared"
	}
	do(0, v.After, func(x *Script) **Await { return &x.Visits[number].After }, acquire, lock, mode, "within: "+patience)
	if v.Cancel > 0 && !x.over(v.At+v.Cancel, nil) {
		l.add(v.At+v.Cancel, nil, nil, "do: cancel", "user: "+v.User, "async: true", "outcome: any",
			"within: "+within.String())
	}
	if v.Write > 0 && !x.over(v.At+v.Write, nil) {
		do(v.Write, nil, nil, "read", lock, "within: "+rest)
		l.add(v.At+v.Write, nil, nil, "do: write", "user: "+v.User, lock, "value: "+strconv.Itoa(1000+number), "async: true",
			"outcome: any", "within: "+rest)
	}
	if v.Renew > 0 {
		do(v.Renew, nil, nil, renew, lock, "within: "+rest)
	}
	until := func(x *Script) **Await { return &x.Visits[number].Until }
	switch {
	case v.Close:
		do(max(v.Hold, 1), v.Until, until, "close", "within: "+rest)
	case v.Hold > 0 || v.Until != nil:
		do(max(v.Hold, 1), v.Until, until, release, lock, "within: "+rest)
	}
}

// over reports whether a time of the script is after its load. Later actions are left out: at the end, a run lets
// users continue, releases what they hold, and heals.
func (x Script) over(at time.Duration, after *Await) bool {
	return x.End == nil && after == nil && at >= x.For
}

// arm lays out the arming of a point before the call that passes it.
func (l *timeline) arm(v Visit, at time.Duration, verb string) {
	a := v.Arm
	if a == nil || call(a.Before) != verb {
		return
	}
	action := "wait"
	if a.Die {
		action = "die"
	}
	l.add(v.At+at, nil, nil, "do: arm", "user: "+v.User, "point: "+strconv.Quote(a.Point), "action: "+action,
		"async: true", "within: "+within.String())
}

// proceed lets the user continue from the point at which it waits.
func (l *timeline) proceed(v Visit, at time.Duration, verb string, number int) {
	a := v.Arm
	if a == nil || call(a.Before) != verb || a.Die || a.Wait == 0 && a.Until == nil {
		return
	}
	until := func(x *Script) **Await { return &x.Visits[number].Arm.Until }
	l.add(v.At+at+max(a.Wait, 1), a.Until, until, "do: continue", "user: "+v.User, "point: "+strconv.Quote(a.Point), "async: true",
		"within: "+within.String())
}

// call returns the first step of a call of a visit, which reads before it writes.
func call(before string) string {
	if before == write {
		return "read"
	}
	return before
}

// steps returns the moments in order, with the awaits between them.
func (l *timeline) steps() (out []string) {
	now := time.Duration(0)
	for _, m := range l.moments {
		switch {
		case m.after != nil:
			out = append(out, m.after.step())
		case m.at-now >= time.Millisecond:
			d := m.at - now
			out = append(out, flow([]string{"await: elapsed", "for: " + d.String(), "within: " + (d + within).String()}))
		}
		now = max(now, m.at)
		if m.step != "" {
			out = append(out, m.step)
		}
	}
	return out
}

// step returns an await as a step.
func (a *Await) step() string {
	list := []string{"await: " + a.Kind}
	add := func(key, value string) {
		if value != "" {
			list = append(list, key+": "+value)
		}
	}
	add("of", a.Of)
	add("user", a.User)
	if a.Lock > 0 && (a.Kind == "event" || a.Kind == "validity-over") {
		add("lock", workloads.LockName(a.Lock))
	}
	add("event", a.Event)
	add("node", a.Node)
	if a.Point != "" {
		add("point", strconv.Quote(a.Point))
	}
	if a.Fact != "" {
		add("fact", strconv.Quote(a.Fact))
		add("is", strconv.Quote(a.Is))
	}
	return flow(append(list, "within: "+within.String()))
}

// Text describes for people what the script does, briefly and in the order of time.
func (x Script) Text() string {
	var parts []string
	if c := x.Crowd; c.Clients > 0 {
		parts = append(parts, fmt.Sprintf("%d users for %v", c.Clients*max(c.Users, 1), x.For))
	}
	for _, in := range x.Faults {
		text := fmt.Sprintf("%s on %s", in.Use, in.On)
		if in.Keys != "" {
			text += " (" + in.Keys + ")"
		}
		parts = append(parts, text)
	}
	for _, v := range x.Visits {
		text := "visit of " + v.User
		if a := v.Arm; a != nil && a.Die {
			text += " who dies at " + a.Point
		} else if a != nil {
			text += " who waits at " + a.Point
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
