package checkers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// script is a history written by hand, as testdata/golden has them. Its lines are
//
//	run KEY=VALUE...                        what the checkers are told; error=MS of all clients' clocks, error.A=MS of one client's, error.register=MS of the resource's
//	fault NAME on=USER|nN [hold=N] at=MS until=MS [lag=BYTES] [new=NODE] [locks=NAME,...] [status=STATUS]   its receipt is installed where nothing is said
//	saw STEP BY NODE FACT ANSWER at=MS [until=MS] [took=MS] [whose=USER] [ends-in=MS]   an observation (- is no answer), of a grant of that user's latest acquire so far
//	MS USER KIND PHASE [KEY=VALUE...]       an event; USER is A, B, ... (clients) or A2 (user 2 of client A)
//	                                        to=MS: the outcome of what was invoked then; the user's latest invoke of that kind where nothing is said
//	                                        code=NAME: the class of its error
//	                                        on=N: replica N did it, as the user's access number=N; of=NAME: that process did it
//	reading MS requests=N,... notifications=N,... connections=N,... cpu=MS,... starts=N,...   what servers and clients had counted
//	hung CLIENT MS                          a client that lived until then, and did not end on request
//	keeps WHEN USERS KIND=N,PERUSER,PERLOCK...   what the service keeps before, loaded or after; a kind that begins with + ends with its client
//	want NAME=VALUE...                      counts and measures (null where nothing is judged), verdict:CHECKER, witnesses:CHECKER (how many), excused:NAME, chances:NAME
//
// Times are ms. hold=N names the user's Nth acquire, by default its latest one; all names none, as a death of all its
// holds does.
type script struct {
	run    results.Run
	events []history.Event
	at     []string // by event: the replica that it happened at, or ""
	want   map[string]string
	seq    map[int]uint32
	holds  map[history.User][]uint32
	ops    map[history.User]map[history.Kind]uint32
	faults []string
}

func parseScript(text string) (*script, error) {
	s := &script{
		want: map[string]string{}, seq: map[int]uint32{}, holds: map[history.User][]uint32{},
		ops: map[history.User]map[history.Kind]uint32{},
		run: results.Run{Locks: []string{"lock-0", "lock-1"}, Token: TokenNone, TTL: 10e9, Expires: true, Recovery: 10e9, End: 100e9},
	}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if err := s.line(f); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	for _, f := range s.faults {
		if err := s.fault(strings.Fields(f)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *script) line(f []string) error {
	switch f[0] {
	case "run":
		return each(f[1:], s.tell)
	case "fault":
		s.faults = append(s.faults, strings.Join(f[1:], " "))
		return nil
	case "saw":
		return s.saw(f[1:])
	case "reading":
		return s.reading(f[1:])
	case "footprint":
		return s.footprint(f[1:])
	case "hung":
		until, err := millis(f[2])
		s.run.Hung = append(s.run.Hung, results.Hung{Name: history.ClientName(int(f[1][0] - 'A')), Until: until})
		return err
	case "keeps":
		return s.keeps(f[1], f[2], f[3:])
	case "want":
		return each(f[1:], func(k, v string) error { s.want[k] = v; return nil })
	}
	return s.event(f)
}

// reading takes the counters of nodes 1, 2, ...; "-" means that a node did not report.
func (s *script) reading(f []string) error {
	at, err := millis(f[0])
	if err != nil {
		return err
	}
	r := results.Reading{Time: at, Requests: map[string]int64{}, Notifications: map[string]int64{}, Connections: map[string]int64{}, CPU: map[string]int64{history.Engine: 7 * at}, Starts: map[string]int{}}
	s.run.Readings = append(s.run.Readings, r)
	return each(f[1:], func(k, v string) error {
		into := r.Requests
		switch k {
		case "notifications":
			into = r.Notifications
		case "connections":
			into = r.Connections
		}
		for i, text := range strings.Split(v, ",") {
			if text == "-" {
				continue
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return err
			}
			switch k {
			case "cpu":
				r.CPU[history.ClientName(i)] = n * int64(time.Millisecond)
			case "starts":
				r.Starts[strconv.Itoa(i+1)] = int(n)
			default:
				into[strconv.Itoa(i+1)] = n
			}
		}
		return nil
	})
}

// footprint takes the footprints of clients A, B, ...: descriptors, threads and KiB.
func (s *script) footprint(f []string) error {
	at, err := millis(f[0])
	if err != nil {
		return err
	}
	of := map[string]results.Footprint{}
	s.run.Footprints = append(s.run.Footprints, results.Footprints{Time: at, Of: of})
	return each(f[1:], func(k, v string) error {
		var x results.Footprint
		_, err := fmt.Sscanf(v, "%d,%d,%d", &x.Descriptors, &x.Threads, &x.Memory)
		x.Memory <<= 10
		of[history.ClientName(int(k[0]-'A'))] = x
		return err
	})
}

// keeps takes the service's report on its contents.
func (s *script) keeps(when, users string, f []string) (err error) {
	c := s.run.Contents
	if c == nil {
		c = &results.Contents{}
		s.run.Contents = c
	}
	if s.run.Users, err = strconv.Atoi(users); err != nil {
		return err
	}
	into := map[string]*map[string]results.Content{"before": &c.Before, "loaded": &c.Loaded, "after": &c.After}[when]
	*into = map[string]results.Content{}
	return each(f, func(kind, v string) error {
		x := results.Content{}
		kind, x.Attached = strings.TrimPrefix(kind, "+"), strings.HasPrefix(kind, "+")
		_, err := fmt.Sscanf(v, "%d,%d,%d", &x.N, &x.PerUser, &x.PerLock)
		(*into)[kind] = x
		return err
	})
}

func each(words []string, f func(k, v string) error) error {
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if err := f(k, v); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

func (s *script) tell(k, v string) (err error) {
	switch k {
	case "token":
		s.run.Token = v
	case "resource":
		s.run.Resource = v
	case "writes":
		s.run.Writes = v
	case "permits":
		s.run.Permits, err = strconv.Atoi(v)
	case "stock":
		var n int64
		n, err = strconv.ParseInt(v, 10, 64)
		s.run.Terms = map[string]int64{"stock": n}
	case "replicas":
		n, err := strconv.Atoi(v)
		for i := range n {
			s.run.Replicas = append(s.run.Replicas, replicaName(i+1))
		}
		return err
	case "acquires", "releases": // requests to the servers for each
		into := &s.run.Acquires
		if k == "releases" {
			into = &s.run.Releases
		}
		for _, text := range strings.Split(v, ",") {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return err
			}
			*into = append(*into, n)
		}
	case "increments":
		s.run.Increments = true
	case "fair": // grants in the order of requests
		s.run.Fair = true
	case "terse": // servers break connections without an answer
		s.run.Terse = true
	case "servers": // a majority of these must agree on a grant
		s.run.Majority = &results.Majority{Servers: strings.Split(v, ","), Apart: true}
	case "tells": // holders are notified of a loss
		s.run.Tells = true
	case "protected":
		s.run.Protected = []string{v}
	case "directed":
		s.run.Directed = true
	case "endless-grants":
		s.run.Expires, s.run.Recovery = false, 0
	case "ttl":
		s.run.TTL, err = millis(v)
	case "recovery":
		s.run.Recovery, err = millis(v)
	case "start":
		s.run.Start, err = millis(v)
	case "end":
		s.run.End, err = millis(v)
	case "measured": // after a warm-up
		var m results.Interval
		from, to, _ := strings.Cut(v, "-")
		if m.From, err = millis(from); err == nil {
			m.To, err = millis(to)
		}
		s.run.Measured = &m
	case "cores":
		s.run.Cores, err = strconv.Atoi(v)
	case "unserved":
		n, err := strconv.ParseInt(v, 10, 64)
		s.run.Clients = append(s.run.Clients, results.ClientStats{Name: "client-1", Unstarted: n})
		return err
	case "cpu":
		c := results.ClientStats{Name: history.ClientName(len(s.run.Clients))}
		c.CPU, err = millis(v)
		s.run.Clients = append(s.run.Clients, c)
	case "dead":
		s.run.Dead = append(s.run.Dead, v)
	case "lost": // a process
		s.run.Lost = append(s.run.Lost, results.Lost{Name: v})
		if _, client := history.ClientOf(v); client {
			s.run.Dead = append(s.run.Dead, v)
		}
	case "ended": // follows lost: its process was observed to end
		s.run.Lost[slices.IndexFunc(s.run.Lost, func(l results.Lost) bool { return l.Name == v })].Ended = "exit status 1"
	case "error.register": // of the resource's clock
		p := history.Header{Process: "register"}
		p.ErrorNS, err = millis(v)
		s.run.Processes = append(s.run.Processes, p)
	case "error":
		for c := range 8 {
			p := history.Header{Process: history.ClientName(c)}
			if p.ErrorNS, err = millis(v); err != nil {
				return err
			}
			s.run.Processes = append(s.run.Processes, p)
		}
	default:
		user, ok := strings.CutPrefix(k, "error.")
		if !ok {
			return fmt.Errorf("unknown key")
		}
		p := history.Header{Process: history.ClientName(scriptUser(user).Client())}
		p.ErrorNS, err = millis(v)
		s.run.Processes = append(s.run.Processes, p)
	}
	return err
}

func (s *script) fault(f []string) error {
	x := history.Fault{ID: len(s.run.Faults) + 1, Name: f[0], Receipt: history.Receipt{Status: history.Installed}}
	x.Traits = &history.Traits{Kills: f[0] == "kill" || f[0] == "restart", Halts: f[0] == "pause" || f[0] == "freeze", Idle: f[0] == "noop"}
	err := each(f[1:], func(k, v string) (err error) {
		switch k {
		case "on":
			if strings.HasPrefix(v, "n") { // servers, or what is protected
				x.Targets, x.Target = strings.Split(v, ","), v
				return nil
			}
			u := scriptUser(v)
			x.Targets, x.Target = []string{history.ClientName(u.Client())}, v
			x.User = &u
		case "peers": // nodes at the other ends of links
			x.Peers = strings.Split(v, ",")
		case "hold":
			var n int
			n, err = strconv.Atoi(v)
			x.Grant = s.holds[*x.User][n-1]
		case "at":
			x.Start, err = millis(v)
			x.Bit = x.Start
		case "until":
			x.End, err = millis(v)
		case "lag":
			var n int64
			n, err = strconv.ParseInt(v, 10, 64)
			x.Lead = &history.Lead{Lag: &n}
		case "locks": // held by the target, for a service that spreads them
			x.Shard = &history.Shard{Locks: strings.Split(v, ",")}
			if v == "?" {
				x.Shard = &history.Shard{Unknown: "no answer"}
			}
		case "new":
			x.Lead = &history.Lead{New: v}
		case "old": // after new
			x.Lead.Old = v
		case "led":
			x.Lead.Led, err = millis(v)
		case "selector":
			x.Selector = v
		case "status":
			x.Receipt.Status = history.ReceiptStatus(v)
		}
		return err
	})
	s.run.Faults = append(s.run.Faults, x)
	return err
}

func (s *script) saw(f []string) error {
	step, err := strconv.Atoi(f[0])
	if err != nil || len(f) < 6 {
		return fmt.Errorf("%v is no observation", f)
	}
	o := history.Observation{Step: step, By: f[1], Node: f[2], Fact: f[3], Answer: strings.TrimPrefix(f[4], "-"), Count: 1}
	err = each(f[5:], func(k, v string) (err error) {
		switch k {
		case "at":
			o.Asked, err = millis(v)
			o.Answered, o.LastAsked, o.LastAnswered = o.Asked, o.Asked, o.Asked
		case "until":
			o.LastAsked, err = millis(v)
			o.LastAnswered, o.Count = o.LastAsked, 2
		case "took": // for each answer
			var ns int64
			ns, err = millis(v)
			o.Answered, o.LastAnswered = o.Answered+ns, o.LastAnswered+ns
		case "ends-in":
			var ns int64
			ns, err = millis(v)
			o.EndsIn = &ns
		case "whose":
			u := scriptUser(v)
			hs := s.holds[u]
			o.User, o.Grant = &u, hs[len(hs)-1]
		default:
			err = fmt.Errorf("unknown key")
		}
		return err
	})
	s.run.Observed = append(s.run.Observed, o)
	return err
}

func replicaName(n int) string { return "epoch-" + strconv.Itoa(n) }

func millis(s string) (int64, error) {
	switch s {
	case "endless":
		return history.ValidEndless, nil
	case "unknown":
		return history.ValidUnknown, nil
	}
	d, err := time.ParseDuration(s + "ms")
	return int64(d), err
}

// scriptUser reads A, B2, ...
func scriptUser(s string) history.User {
	n, _ := strconv.Atoi(s[1:])
	return history.MakeUser(int(s[0]-'A'), n)
}

func (s *script) event(f []string) error {
	at, err := millis(f[0])
	if err != nil || len(f) < 4 {
		return fmt.Errorf("%v is no event", f)
	}
	e := history.Event{Time: at, User: scriptUser(f[1])}
	for e.Kind = history.Acquire; e.Kind.String() != f[2]; e.Kind++ {
		if e.Kind > history.ReleaseUnheld {
			return fmt.Errorf("unknown kind %s", f[2])
		}
	}
	for e.Phase = history.Invoke; e.Phase.String() != f[3]; e.Phase++ {
		if e.Phase > history.Info {
			return fmt.Errorf("unknown phase %s", f[3])
		}
	}
	s.number(&e)
	on := ""
	err = each(f[4:], func(k, v string) (err error) {
		switch k {
		case "valid":
			e.Valid, err = millis(v)
		case "issued", "alive", "due": // due: of an invoke, its intended start
			e.Value, err = millis(v)
		case "value":
			e.Value, err = strconv.ParseInt(v, 10, 64)
		case "token":
			e.Token, err = strconv.ParseUint(v, 10, 64)
		case "tries":
			var n uint64
			n, err = strconv.ParseUint(v, 10, 32)
			e.Tries = uint32(n)
		case "code":
			for e.Code = history.CodeNone; history.CodeName(e.Code) != v && e.Code < history.CodeOther; e.Code++ {
			}
		case "lock":
			var n int
			n, err = strconv.Atoi(v)
			e.Lock = uint16(n)
		case "hold":
			var n int
			n, err = strconv.Atoi(v)
			e.Grant = s.holds[e.User][n-1]
		case "to": // the operation invoked then
			var asked int64
			asked, err = millis(v)
			e.Op = s.events[slices.IndexFunc(s.events, func(o history.Event) bool { return o.User == e.User && o.Time == asked })].Op
		case "on":
			var n int
			n, err = strconv.Atoi(v)
			on = replicaName(n)
		case "of":
			on = v
		case "number":
			e.Valid, err = strconv.ParseInt(v, 10, 64)
		case "all": // holds of the user
			e.Grant = 0
		case "shared":
			e.Mode = 1
		case "conditional": // the condition was checked with the write, and was false if that was refused
			e.Code = history.CodeConditional
		case "fenced":
			e.Code = history.CodeFenced
		case "not-held":
			e.Code = history.CodeNotHeld
		case "connection":
			e.Code = history.CodeConnection
		case "timeout":
			e.Code = history.CodeTimeout
		default:
			err = fmt.Errorf("unknown key")
		}
		return err
	})
	s.events, s.at = append(s.events, e), append(s.at, on)
	for i := range s.run.Lost {
		others := e.Kind == history.EffectRead || e.Kind == history.EffectWrite || e.Kind == history.Final || e.Kind == history.Dead || e.Kind == history.Ended
		if l := &s.run.Lost[i]; l.Name == history.ClientName(e.User.Client()) && !others {
			l.Last = at
		}
	}
	return err
}

// number sets the ids that link the events of one operation and of one hold.
func (s *script) number(e *history.Event) {
	s.seq[e.User.Client()]++
	e.Seq = s.seq[e.User.Client()]
	e.Op = e.Seq
	if s.ops[e.User] == nil {
		s.ops[e.User] = map[history.Kind]uint32{}
	}
	if e.Phase == history.Invoke {
		s.ops[e.User][e.Kind] = e.Op
		if e.Kind == history.Acquire {
			s.holds[e.User] = append(s.holds[e.User], e.Op)
		}
	} else if op := s.ops[e.User][e.Kind]; op != 0 && (e.Kind <= history.Write || e.Kind >= history.Close) {
		e.Op = op
	} else if e.Kind == history.Cancel {
		e.Op = s.ops[e.User][history.Acquire]
	}
	if hs := s.holds[e.User]; len(hs) > 0 && e.Kind != history.ReleaseUnheld {
		e.Grant = hs[len(hs)-1]
	}
}
