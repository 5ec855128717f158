package stories

import (
	"slices"
	"strings"
	"time"
)

// Calm is for how long nothing happens before a user that was in trouble must be able to use its lock again: longer than the bound that the judge
// leaves it.
func (s Subject) Calm() time.Duration {
	bound := s.TTL
	if r := s.Lock.Bound(s.TTL, nil); r > 0 && s.Lock.Offers.Expires {
		bound = r
	}
	return bound + s.TTL/4
}

// Renews says that clients can be told to extend their grants.
func (s Subject) Renews() bool { return s.Lock.Offers.Renewal == "call" }

// extended says that something extends grants: the lock by itself, or its user.
func (s Subject) extended() bool { return s.Lock.Offers.Renewal != "none" }

// keeps says that a holder can keep the lock for as long as it likes.
func keeps(s Subject) string {
	if s.Lock.Offers.Expires && !s.extended() {
		return "the lock's grants end, and nothing extends them"
	}
	return ""
}

// tells says that holders are told of a loss.
func tells(s Subject) string {
	if !s.Lock.Offers.LossSignal {
		return "the lock tells nobody of a loss"
	}
	return expiring(s)
}

// whole says that a service that is silent for a while forgets no grants.
func whole(s Subject) string {
	if slices.Contains(loses, s.Backend) {
		return "a server that does not answer is replaced by one that may not know its grants"
	}
	return processes(s)
}

// again has users ask for a lock twice, the second time when a lock object that gives nothing but errors is known to be wedged. Another user has
// proved before that the lock can be had.
const again = `  - {await: elapsed, for: {{.Calm}}, within: {{.Long}}}
  - {do: release, user: C, outcome: any}
  - {do: acquire, user: E, outcome: any, within: {{.Long}}}
  - {do: release, user: E, outcome: any}
` + reuse + `  - {await: elapsed, for: {{.Calm}}, within: {{.Long}}}
` + reuse

const reuse = `{{- range $u := .Troubled}}
  - {do: acquire, user: {{$u}}, outcome: any, within: {{$.Long}}}
{{- if $.Renews}}
  - {do: renew, user: {{$u}}, outcome: any}
{{- end}}
  - {do: release, user: {{$u}}, outcome: any}
{{- end}}
`

// inTrouble has A hold the lock, B wait for it, C ask for it, and D close its lock object while something is broken. Their calls must return, and then
// A, B and C must get the lock.
const inTrouble = `workload: {timeout: {{.Long}}}
steps:
  - {do: acquire, user: A}
  - {do: acquire, user: D, lock: lock-1}
  - {do: acquire, user: B, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: 200ms}
  - {inject: FAULT, as: trouble}
{{- if .Renews}}
  - {do: renew, user: A, async: true, outcome: any, within: {{ttl 0.25}}}
{{- end}}
  - {do: release, user: A, async: true, outcome: any, within: {{ttl 0.25}}}
  - {do: acquire, user: C, async: true, outcome: any, within: {{ttl 0.5}}}
  - {do: close, user: D, async: true, outcome: any, within: {{ttl 0.5}}}
  - {do: cancel, user: B, outcome: any}
  - {await: elapsed, for: {{ttl LASTS}}, within: {{.Long}}}
  - {heal: trouble}
` + again + `expect: {double_grants: "0", deaf_waits: "0", wedges: "0", stuck_locks: "0", judged: ">=1"}
`

func trouble(name, claim, fault, lasts string) Story {
	return Story{
		Name: name, Claim: claim, needs: whole, lasts: 6,
		text: strings.NewReplacer("FAULT", fault, "LASTS", lasts).Replace(inTrouble),
	}
}

// oddNames are names that a library may not expect, or may put into a key, a path or a statement as they are.
var oddNames = []string{
	"two words", "a/b//c/", "/", "..", "schlüssel-锁-🔒", "{a}b{c}", "it's; DROP TABLE \"locks\" --", "%s%d*?[a]", strings.Repeat("long", 60),
}

// ofSeveral leaves the story to services of several servers. To one server it would be much like hang.
func ofSeveral(t Story) Story {
	t.needs = both(t.needs, func(s Subject) string {
		if !slices.Contains(leads, s.Backend) && s.Backend != "redlock" {
			return "the service is one server, and the story hang is about its silence"
		}
		return ""
	})
	return t
}

// waits lists the stories about calls that must return, news of losses, and lock objects that must be of use again.
var waits = []Story{
	{
		Name: "cancel", Quick: true, lasts: 2,
		Claim: "The deadline of a waiter passes, and another one is told to give up. Both calls return, and both users get the lock later.",
		text: `workload: {timeout: {{.Long}}{{if .Renews}}, renew: true{{end}}}
steps:
  - {do: acquire, user: A}
  - {do: acquire, user: B, async: true, outcome: any, within: {{ttl 0.25}}}
  - {do: acquire, user: C, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.4}}}
  - {do: cancel, user: C, outcome: any}
  - {await: elapsed, for: {{ttl 2}}, within: {{.Long}}} # beyond the bound by more than a machine stands still
  - {do: release, user: A, outcome: any}
  - {do: release, user: B, async: true, outcome: any} # of what it may have been granted all the same
  - {do: release, user: C, async: true, outcome: any}
  - {do: acquire, user: B, outcome: any, within: {{.Long}}}
  - {do: release, user: B, outcome: any}
  - {do: acquire, user: C, outcome: any, within: {{.Long}}}
  - {do: release, user: C, outcome: any}
expect: {double_grants: "0", deaf_waits: "0", wedges: "0", stuck_locks: "0", judged: ">=1"}
`,
	},
	{
		Name: "news", needs: tells, lasts: 4,
		Claim: "A holder is cut off until another user has the lock. It is told that its grant is gone, while it is still cut off.",
		text: `workload: {}
steps:
  - {do: acquire, user: A}
{{- if not .InProcess}}
  - {inject: partition, on: A, from: all, as: cut}
{{- end}}
  - {do: acquire, user: B, within: {{.Long}}}
  - {await: elapsed, for: {{.Calm}}, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.5}}}
{{- if not .InProcess}}
  - {heal: cut}
{{- end}}
  - {do: release, user: B, outcome: any}
  - {do: release, user: A, outcome: any}
expect: {double_grants: "0", untold_losses: "0", judged: ">=1"}
`,
	},
	{
		Name: "again", free: outlived, needs: expiring, lasts: 5,
		Claim: "A holder loses its lock, and releases what it has lost. It can take the lock again, extend it and give it back.",
		text: `workload: {}
steps:
  - {do: acquire, user: A}
` + stop + `  - {do: acquire, user: B, within: {{.Long}}}
` + goOn + `  - {do: release, user: B, outcome: any}
  - {do: release, user: A, outcome: any}
` + strings.ReplaceAll(again, ".Troubled", `slice .Troubled 0 1`) + `expect: {double_grants: "0", deaf_waits: "0", wedges: "0", stuck_locks: "0", judged: ">=2"}
`,
	},
	{
		Name: "waiter-cut", needs: both(processes, keeps), lasts: 4,
		Claim: "A user that waits for the lock is cut off for longer than its own session lasts, and comes back. It must not get a lock that another user has.",
		text: `workload: {timeout: {{.Long}}{{if .Renews}}, renew: true{{end}}}
steps:
  - {do: acquire, user: A}
  - {do: acquire, user: B, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: 200ms}
  - {inject: partition, on: B, from: all, as: cut}
  - {await: elapsed, for: {{ttl 2.25}}, within: {{.Long}}}
  - {do: acquire, user: C, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: 200ms}
  - {heal: cut}
  - {await: elapsed, for: {{ttl 0.25}}}
  - {do: release, user: A, outcome: any}
  - {do: acquire, user: D, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.75}}}
  - {do: release, user: C, outcome: any, within: {{.Long}}}
  - {do: release, user: B, outcome: any, within: {{.Long}}}
  - {do: release, user: D, outcome: any, within: {{.Long}}}
expect: {double_grants: "0", overlapping_holds: "0", stuck_locks: "0", wedges: "0", judged: ">=2"}
`,
	},
	{
		Name: "steady-delay", needs: both(processes, renewing), lasts: 4,
		Claim: "All answers to a holder come late, as long as it has the lock. It extends its grant and keeps it, and nobody else gets the lock.",
		text: `workload: {timeout: {{.Long}}, renew: true}
steps:
  - {do: acquire, user: A}
  - {inject: delay, on: A, to: all, by: {{.Delay}}, as: slow}
  - {do: acquire, user: B, async: true, outcome: not-ok, within: {{ttl 2.5}}}
  - {await: elapsed, for: {{ttl 2.75}}, within: {{.Long}}}
  - {heal: slow}
  - {do: release, user: A, outcome: any}
  - {do: acquire, user: B, within: {{.Long}}}
  - {do: release, user: B, outcome: any}
expect: {double_grants: "0", deaf_waits: "0", judged: ">=2"}
`,
	},
	{
		Name: "odd-names", lasts: 2,
		Claim: "Locks are named with spaces, slashes, quotes, braces, other scripts, and at length. None is granted to two users.",
		text: `workload: {}
steps:
{{- range .OddNames}}
  - {do: acquire, user: A, lock: {{printf "%q" .}}, outcome: any, within: {{ttl 0.5}}}
  - {do: acquire, user: B, lock: {{printf "%q" .}}, outcome: any, within: {{ttl 0.05}}}
  - {do: release, user: A, lock: {{printf "%q" .}}, outcome: any}
  - {do: release, user: B, lock: {{printf "%q" .}}, outcome: any}
{{- end}}
expect: {double_grants: "0", stuck_locks: "0", judged: ">=1"}
`,
	},
	{
		Name: "like-names", needs: keeps, lasts: 2,
		Claim: "The name of a lock is the beginning of another's, or differs by its case or a space. Each can be taken while the others are held.",
		text: `workload: {timeout: {{.Long}}{{if .Renews}}, renew: true{{end}}}
steps:
  - {do: acquire, user: A, lock: part}
  - {do: acquire, user: B, lock: part/1, outcome: any, within: {{.Long}}}
  - {do: acquire, user: C, lock: part/1/2, outcome: any, within: {{.Long}}}
  - {do: acquire, user: D, lock: PART, outcome: any, within: {{.Long}}}
  - {do: acquire, user: E, lock: "part ", outcome: any, within: {{.Long}}}
  - {do: release, user: A, lock: part, outcome: any}
  - {do: release, user: B, lock: part/1, outcome: any}
  - {do: acquire, user: B, lock: part/1, outcome: any, within: {{.Long}}}
  - {do: acquire, user: A, lock: part, outcome: any, within: {{.Long}}}
  - {do: release, user: A, lock: part, outcome: any}
  - {do: release, user: B, lock: part/1, outcome: any}
  - {do: release, user: C, lock: part/1/2, outcome: any}
  - {do: release, user: D, lock: PART, outcome: any}
  - {do: release, user: E, lock: "part ", outcome: any}
expect: {double_grants: "0", stuck_locks: "0", judged: ">=1"}
`,
	},
	trouble("hang", "All servers stand still. Calls with a deadline return, a waiter gives up, a lock object is closed, and all can be used when the servers go on.",
		"pause, on: all", "1.75"),
	ofSeveral(trouble("hang-one", "One of several servers stands still. Calls with a deadline return, and the lock objects can be used when it goes on.",
		"pause, on: one", "1.75")),
	trouble("refuse", "A server refuses all connections. Calls return, and the lock objects can be used when it takes them again.",
		"partition, on: one, from: clients, how: reject", "1"),
	ofSeveral(trouble("lost-replies", "Nothing that the servers answer arrives. Calls with a deadline return, and the lock objects can be used afterwards.",
		"partition, on: [A, B, C, D], from: all, direction: in", "1")),
}

// renewing says that grants end and are extended over a slow link, by the lock or by its user.
func renewing(s Subject) string {
	switch {
	case !s.extended():
		return "nothing extends the lock's grants"
	case s.Backend == "redlock":
		return "the lock does not wait so long for any server"
	}
	return expiring(s)
}

// Delay is how much longer each way to the service takes, where a lock must still be able to keep a grant: a round trip takes a quarter of the
// TTL. Where the user extends the grant by calls, it takes an eighth: a call has a third of the TTL, and a script that the server does not know
// takes two round trips.
func (s Subject) Delay() time.Duration {
	if s.Lock.Offers.Renewal == "background" {
		return s.TTL / 8
	}
	return s.TTL / 16
}
