package checkers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// injections is the maximum of a run.
const injections = 12_000

// handMade is a run directory whose files cause as much work as they can. Each of its events is valid by itself.
type handMade struct {
	t     *testing.T
	dir   string
	n     int
	locks []string
	files map[string]*handFile
	now   int64
	env   results.Env
}

type handFile struct {
	w   *history.Writer
	seq uint32
}

func (d *handMade) file(process string) *handFile {
	f := d.files[process]
	if f == nil {
		w, err := history.Create(filepath.Join(d.dir, results.DirHistory, process+".lqh"), history.Header{Process: process, Locks: d.locks})
		if err != nil {
			d.t.Fatal(err)
		}
		f = &handFile{w: w}
		d.files[process] = f
	}
	return f
}

// tell adds an event of a process, and returns its number.
func (d *handMade) tell(process string, e history.Event) uint32 {
	f := d.file(process)
	f.seq++
	d.now += 1000
	e.Time, e.Seq = d.now, f.seq
	if e.Op == 0 {
		e.Op = e.Seq
	}
	if err := f.w.Append(&e); err != nil {
		d.t.Fatal(err)
	}
	return e.Seq
}

// take grants a user a lock.
func (d *handMade) take(u history.User, lock uint16) uint32 {
	me := history.ClientName(u.Client())
	op := d.tell(me, history.Event{Kind: history.Acquire, Phase: history.Invoke, User: u, Lock: lock})
	d.tell(me, history.Event{
		Kind: history.Acquire, Phase: history.Ok, User: u, Lock: lock, Op: op, Grant: op, Valid: d.now + 1e12, Value: d.now, Token: uint64(op),
	})
	return op
}

// both adds an operation of a user and its success.
func (d *handMade) both(k history.Kind, u history.User, lock uint16, grant uint32, value int64) {
	e := history.Event{Kind: k, Phase: history.Invoke, User: u, Lock: lock, Grant: grant, Value: value}
	e.Op = d.tell(history.ClientName(u.Client()), e)
	e.Phase = history.Ok
	d.tell(history.ClientName(u.Client()), e)
}

// put writes a file beside the history.
func (d *handMade) put(name string, lines func(line func(any))) {
	f, err := os.Create(filepath.Join(d.dir, name))
	if err != nil {
		d.t.Fatal(err)
	}
	to := json.NewEncoder(f)
	lines(func(v any) {
		if err := to.Encode(v); err != nil {
			d.t.Fatal(err)
		}
	})
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// many returns the i-th of many distinct users: of 50 clients in turn, the highest numbers first.
func many(i int) history.User { return history.MakeUser(i%50, 65535-i/50) }

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	return out
}

// handMades make d.n of the most expensive things.
var handMades = map[string]func(d *handMade){
	"users of high numbers": func(d *handMade) {
		for i := range d.n {
			u := many(i)
			d.tell(history.ClientName(u.Client()), history.Event{Kind: history.Acquire, Phase: history.Invoke, User: u})
		}
	},
	"effects of nobody": func(d *handMade) {
		for i := range d.n {
			d.tell("register", history.Event{Kind: history.EffectWrite, Phase: history.Ok, User: history.User(uint32(i) * 2654435761), Grant: 1})
		}
	},
	"deaths of nobody": func(d *handMade) {
		for i := range d.n {
			d.tell(history.Engine, history.Event{Kind: history.Dead, Phase: history.Info, User: history.User(uint32(i) * 2654435761), Grant: 1})
		}
	},
	"many deaths of one client": func(d *handMade) {
		for i := range d.n {
			d.take(history.MakeUser(0, i%65536), uint16(i/65536))
		}
		for range d.n {
			d.tell(history.Engine, history.Event{Kind: history.Dead, Phase: history.Info, Grant: 1})
		}
	},
	"one user of many locks": func(d *handMade) {
		d.locks = names("l", min(d.n, 60_000))
		var grants []uint32
		for i := range d.locks {
			grants = append(grants, d.take(0, uint16(i)))
		}
		for i, g := range grants {
			d.both(history.Release, 0, uint16(i), g, 0)
		}
	},
	"many users of one lock": func(d *handMade) {
		var grants []uint32
		for i := range d.n {
			grants = append(grants, d.take(many(i), 0))
		}
		for i, g := range grants {
			d.both(history.Release, many(i), 0, g, 0)
		}
	},
	"many users with one lock in turn, and renewals": func(d *handMade) {
		g := d.take(0, 0)
		for range d.n {
			d.tell("client-1", history.Event{Kind: history.Renewed, Phase: history.Info, Grant: g, Valid: d.now + 5000})
			d.now += 1e6
		}
	},
	"a fault for everything": func(d *handMade) {
		d.locks = names("l", 1000)
		for i := range d.n {
			g := d.take(many(i), uint16(i%1000))
			d.both(history.Release, many(i), uint16(i%1000), g, 0)
		}
		d.put(results.FileFaults, func(line func(any)) {
			for i := range min(d.n, injections) {
				line(history.Fault{ID: i, Name: "pause", Targets: []string{history.ClientName(i % 100), "client-99999999999"}, Start: int64(i) * d.now / int64(d.n), End: 0})
			}
		})
	},
	"a fault for every stall": func(d *handMade) {
		for range d.n {
			d.tell("client-1", history.Event{Kind: history.Stall, Phase: history.Info, Value: 1e9})
		}
		d.put(results.FileFaults, func(line func(any)) {
			for i := range min(d.n, injections) {
				line(history.Fault{ID: i, Name: "pause", Targets: []string{"client-1"}, Start: int64(i) * d.now / int64(d.n), End: int64(i)*d.now/int64(d.n) + 1})
			}
		})
	},
	"locks that nobody asks for": func(d *handMade) {
		d.locks = names("l", min(10*d.n, 60_000))
		for i := range d.locks {
			d.tell("client-1", history.Event{Kind: history.Acquire, Phase: history.Invoke, User: history.MakeUser(0, i), Lock: uint16(i)})
		}
		d.put(results.FileFaults, func(line func(any)) {
			for i := range min(d.n, injections) {
				line(history.Fault{ID: i, Start: int64(i)})
			}
		})
	},
	"servers that all serve": func(d *handMade) {
		d.put(results.FileObserved, func(line func(any)) {
			for i := range d.n {
				line(history.Observation{
					By: history.ByObserve, Fact: history.FactTakes + "lock-0", Node: strconv.Itoa(i % 1000), Answer: "true", Answered: int64(i), LastAsked: 1e9 + int64(i), Count: 2,
				})
			}
		})
	},
	"servers that have every grant": func(d *handMade) {
		d.put(results.FileObserved, func(line func(any)) {
			for i := range d.n {
				u := many(i)
				g := d.take(u, 0)
				line(history.Observation{Step: 1, By: history.ByGrant, Fact: history.FactHolder + "lock-0", Node: strconv.Itoa(i), Answer: "x", Asked: d.now, Answered: d.now, User: &u, Grant: g})
				d.both(history.Release, u, 0, g, 0)
				line(history.Observation{Step: 2, By: history.ByObserve, Fact: history.FactHolder + "lock-0", Node: strconv.Itoa(i), Answer: "none", Asked: 1e11, Answered: 1e11, LastAsked: 1e11, LastAnswered: 1e11})
			}
		})
	},
	"one set for many locks": func(d *handMade) {
		d.locks = names("l", 1000)
		d.env.Writes = "elements"
		g := d.take(0, 0)
		for i := range d.n {
			d.both(history.Read, 0, 0, g, int64(i))
			d.both(history.Write, 0, 0, g, int64(i+1))
		}
		for i := range d.locks {
			d.tell("register", history.Event{Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: int64(d.n)})
		}
	},
	"tokens that fall": func(d *handMade) {
		for i := range d.n {
			u := many(i)
			me := history.ClientName(u.Client())
			op := d.tell(me, history.Event{Kind: history.Acquire, Phase: history.Invoke, User: u})
			d.tell(me, history.Event{Kind: history.Acquire, Phase: history.Ok, User: u, Op: op, Grant: op, Valid: d.now + 1e12, Value: d.now, Token: uint64(1e9 - i)})
			d.tell("register", history.Event{Kind: history.EffectWrite, Phase: history.Ok, User: u, Grant: op, Token: uint64(1e9 - i)})
		}
	},
	"releases of all that inside all": func(d *handMade) {
		var grants []uint32
		for i := range d.n {
			grants = append(grants, d.take(many(i), 0))
		}
		for i, g := range grants {
			d.tell(history.ClientName(many(i).Client()), history.Event{Kind: history.Lost, Phase: history.Info, User: many(i), Grant: g, Valid: d.now})
			d.take(many(i), 0)
			d.both(history.Release, many(i), 0, g, 0)
		}
	},
	"replicas that never agree": func(d *handMade) {
		d.env.Replicas = names("epoch-", 3)
		g := d.take(0, 0)
		for i := range d.n {
			d.tell("epoch-0", history.Event{Kind: history.EffectWrite, Phase: history.Ok, Grant: g, Valid: int64(i)})
		}
	},
	"reasons and clients without number": func(d *handMade) {
		d.take(0, 0)
		d.env.Unknown = names("reason ", d.n)
		for i := range d.n {
			d.env.Clients = append(d.env.Clients, results.ClientStats{Name: "register-" + strconv.Itoa(i)})
		}
	},
	"many files": func(d *handMade) {
		for i := range min(d.n/20, 900) {
			d.take(history.MakeUser(i, 65535), 0)
		}
	},
}

// handMadeNumber is the number of things without LOCKQUAKE_HAND_MADE. `make test-all` has so many that a checker with
// quadratic time takes too long.
const handMadeNumber = 1000

// TestHandMadeRunsAreBounded demands that any run directory is judged, or refused, within time and memory
// proportional to its size.
func TestHandMadeRunsAreBounded(t *testing.T) {
	n := handMadeNumber
	if text := os.Getenv("LOCKQUAKE_HAND_MADE"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for name, build := range handMades {
		t.Run(name, func(t *testing.T) {
			d := &handMade{t: t, dir: t.TempDir(), n: n, locks: []string{"lock-0"}, files: map[string]*handFile{}, env: results.Env{
				Schema: results.EnvSchema, TTL: 1e9, Token: TokenService, Expires: true, Recovery: 1e9, Resource: "register", Finished: true, Recovered: true, FinalRead: true,
			}}
			if err := os.MkdirAll(filepath.Join(d.dir, results.DirHistory), 0o755); err != nil {
				t.Fatal(err)
			}
			build(d)
			d.env.End = d.now
			d.file(history.Engine)
			for _, f := range d.files {
				if err := f.w.Close(); err != nil {
					t.Fatal(err)
				}
			}
			d.put(results.FileEnv, func(line func(any)) { line(d.env) })
			if err := os.WriteFile(filepath.Join(d.dir, results.FileScenario), []byte(scenarioText), 0o644); err != nil {
				t.Fatal(err)
			}
			before, began := allocatedSoFar(), wire.CPU()
			r, err := results.Judge(d.dir, All())
			took, took2 := time.Duration(wire.CPU()-began), allocatedSoFar()-before
			if err != nil && !errors.Is(err, history.ErrCorrupt) {
				t.Error(err)
			}
			if strings.Contains(fmt.Sprint(r.Warnings), "crashed") {
				t.Errorf("%q", r.Warnings)
			}
			t.Logf("%v, %d MiB allocated: %.80s %.200v", took, took2>>20, r.Verdict, err)
			if took > 10*time.Second || took2 > 1<<30 {
				t.Errorf("it took %v and %d bytes", took, took2)
			}
		})
	}
}

// allocatedSoFar returns how many bytes were ever allocated.
func allocatedSoFar() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
