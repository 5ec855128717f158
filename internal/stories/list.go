package stories

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// manyHolds is for how long users take and give back, in a suite that is not quick, and manyGrants how many grants that must come to: a token that begins
// anew after so many is not seen in fewer.
const (
	manyHolds  = 30 * time.Second
	manyGrants = 10_000
)

// A client that is a process is paused, and goes on; others do nothing until they are told.
const (
	stop = `{{- if not .InProcess}}
  - {inject: pause, on: A, as: pause}
{{- end}}
`
	goOn = `{{- if not .InProcess}}
  - {heal: pause}
{{- end}}
`
)

// directed has A paused until B has the lock. Whatever A does then, C must not get the lock while B has it.
const directed = `workload: {}
steps:
  - {do: acquire, user: A}
` + stop + `  - {do: acquire, user: B, within: {{.Long}}}
` + goOn + `  - LATE
  - {do: acquire, user: C, outcome: any, within: 500ms}
  - {do: release, user: B, outcome: any}
  - {do: release, user: A, outcome: any}
  - {do: release, user: C, outcome: any}
expect: {double_grants: "0", ` + truthful + `judged: ">=2"}
`

// lateAt has A's release stopped in its middle until B has the lock.
const lateAt = `workload: {}
steps:
  - {do: acquire, user: A}
  - {do: arm, user: A, point: {{.Point}}, action: wait}
  - {do: release, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: point, user: A, point: {{.Point}}}
` + stop + `  - {do: acquire, user: B, within: {{.Long}}}
` + goOn + `  - {do: continue, user: A, point: {{.Point}}}
  - {do: acquire, user: C, outcome: any, within: 1s}
  - {do: release, user: B, outcome: any}
  - {do: release, user: C, outcome: any}
expect: {double_grants: "0", judged: ">=2"}
`

// dieAt has A die in the middle of an acquire.
const dieAt = `workload: {}
steps:
  - {do: acquire, user: B}
  - {do: release, user: B}
  - {do: arm, user: A, point: {{.Point}}, action: die}
  - {do: acquire, user: A, async: true}
  - {await: point, user: A, point: {{.Point}}}
  - {do: acquire, user: B, outcome: any, within: {{.Long}}}
expect: {double_grants: "0", stuck_locks: "0"}
`

// lateToken has A stopped between its grant and its token, if the lock has two steps.
const lateToken = `workload: {resource: {use: register, guard: fence}}
steps:
  - {do: arm, user: A, point: {{.Point}}, action: wait}
  - {do: acquire, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: point, user: A, point: {{.Point}}}
` + stop + `  - {do: acquire, user: B, within: {{.Long}}}
` + goOn + `  - {do: continue, user: A, point: {{.Point}}}
  - {do: write, user: B, value: 1, outcome: any}
  - {do: write, user: A, value: 2, outcome: any}
  - {do: write, user: B, value: 3, outcome: any}
  - {do: release, user: B, outcome: any}
expect: {double_grants: ">=0", false_refusals: "0", judged: ">=1"}
`

// broken has users fight while something is broken.
const broken = `workload: {use: counter, clients: {{.Clients}}, users: 2, hold: 30ms, resource: {use: register, guard: none}}
chaos:
FAULTS
run: {for: {{ttl 7}}}
expect: {double_grants: "0", stuck_locks: "0", judged: ">=10"}
`

// always lists the stories that are the same for every lock.
var always = []Story{
	{
		Name: "contention", Claim: "Many users fight over one lock, and nothing is broken.", Quick: true, lasts: 4,
		text: `workload: {use: counter, clients: {{.Clients}}, users: {{.Users}}, hold: 1ms, resource: {use: register, guard: none}}
run: {for: {{if .Quick}}{{ttl 2}}{{else}}{{ttl 4}}{{end}}}
expect: {double_grants: "0", overlapping_holds: "0", stale_writes: "0", lost_updates: "0", stuck_locks: "0", judged: ">=20"}
`,
	},
	{
		Name: "late-release", Claim: "A holder is paused until another one has the lock, and then releases what it has lost.", Quick: true, free: outlived,
		needs: expiring, text: strings.Replace(directed, "LATE", "{do: release, user: A, outcome: any}", 1),
	},
	slowRelease,
	{
		Name: "late-renewal", Claim: "A holder is paused until another one has the lock, and then extends what it has lost. It must be told so.", Quick: true, free: outlived,
		needs: renewable, text: strings.Replace(directed, "LATE", "{do: renew, user: A, outcome: not-ok}", 1),
	},
	{
		Name: "renewal", Claim: "A holder extends its grant, and nobody gets the lock before the new end.", Quick: true, free: outlived, needs: renewable,
		text: `workload: {}
steps:
  - {do: acquire, user: A}
  - {await: elapsed, for: {{ttl 0.5}}}
  - {do: renew, user: A, outcome: any}
  - {do: acquire, user: B, outcome: any, within: {{.Long}}}
  - {do: release, user: B, outcome: any}
  - {do: release, user: A, outcome: any}
expect: {double_grants: "0", ` + truthful + `judged: ">=1"}
`,
	},
	{
		Name: "crash", Claim: "A holder dies, and another user gets the lock in time.", Quick: true, needs: processes,
		text: strings.Replace(strings.ReplaceAll(dieAt, "{{.Point}}", "acquired"),
			"point: acquired}\n  - {do: acquire, user: B,", "point: acquired}\n  - {await: event, event: dead, user: A}\n  - {do: acquire, user: B,", 1),
	},
	{
		Name: "overdue", Claim: "A holder keeps silent after its grant has ended, and another user gets the lock in time.", Quick: true, free: outlived, needs: idle, lasts: 2,
		text: `workload: {}
steps:
  - {do: acquire, user: A}
  - {do: acquire, user: B, async: true, outcome: any, within: {{.Long}}}
  - {await: validity-over, user: A}
  - {await: elapsed, for: {{.Bound}}, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.5}}} # beyond the bound by more than a machine stands still
  - {do: release, user: A, outcome: any}
  - {await: event, event: acquire ok, user: B}
  - {do: release, user: B, outcome: any}
expect: {double_grants: "0", held_beyond_validity_ms: "<{{.Bound}}", judged: ">=2"}
`,
	},
	{
		Name: "queue", Claim: "Users wait in the order of asking, and each gets the lock.", Quick: true, needs: fair, lasts: 2,
		text: `workload: {use: counter, clients: 2, users: 4, hold: 5ms, resource: {use: register, guard: none}}
run: {for: {{ttl 2}}}
expect: {double_grants: "0", starved_users: "0", judged: ">=20"}
`,
	},
	{
		Name: "late-replies", Quick: true, needs: majority,
		Claim: "A majority has granted the lock to a user who reads the replies when that is long over. It must not go in.",
		text: `workload: {}
steps:
  - {do: arm, user: A, point: replies-in, action: wait}
  - {do: acquire, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: point, user: A, point: replies-in}
  - {do: acquire, user: B, within: {{.Long}}}
  - {do: continue, user: A, point: replies-in}
  - {await: elapsed, for: 100ms}
  - {do: release, user: B, outcome: any}
expect: {double_grants: "0", overlapping_holds: "0", judged: ">=1"}
`,
	},
	{
		Name: "many-holds", Claim: "Users take the lock again and again, and keep it for no time. Tokens grow, however many there were.", lasts: 2, fixed: manyHolds, Grants: manyGrants,
		// A queue serves many waiters with more grants; those who poll are in each other's way.
		text: `workload: {use: acquire-release, clients: 2, users: {{if .Lock.Offers.Blocking}}16{{else}}1{{end}}, hold: 0s, think: 1ms}
run: {for: {{if .Quick}}{{ttl 2}}{{else}}` + manyHolds.String() + `{{end}}}
expect: {double_grants: "0", overlapping_holds: "0", stuck_locks: "0", judged: ">=100"}
`,
	},
	{
		Name: "still-clock", free: outlived, needs: both(processes, idle), lasts: 5,
		Claim: "The wall clock of a client nearly stands still. Its users ask for the lock at the same moments, and outlive their grants. No late release frees another's grant.",
		text: `workload: {use: stampede, clients: 1, users: 6, every: {{ttl 1}}, hold: {{ttl 1.3}}, timeout: {{.Long}}}
chaos:
  - {use: clock-drift, on: client-1, rate: 0.0001, at: 0s}
run: {for: {{ttl 5}}}
expect: {double_grants: "0", judged: ">=2"}
`,
	},
	cutOff("cut-acquire", "What the service answers to an acquire is lost, and another user gets the lock in time.", "acquire", expiring),
	cutOff("cut-renewal", "What the service answers to a renewal is lost, and another user gets the lock in time.", "renew", renewable),
	cutOff("cut-release", "What the service answers to a release is lost, and another user gets the lock in time.", "release", expiring),
	{
		Name: "hiccup", lasts: 1, needs: both(processes, both(asked, alone)),
		Claim: "What a user sends and is sent comes late for a moment, while it asks for a lock that nobody has. It gets it, or nothing of it stays.",
		text: `workload: {}
steps:
  - {do: acquire, user: A}
  - {do: release, user: A}
  - {inject: delay, on: A, to: all, by: {{ttl 0.05}}, as: late}
  - {do: acquire, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.15}}}
  - {heal: late}
  - {await: elapsed, for: {{ttl 0.1}}}
  - {observe: "keys:lock-0", on: service}
  - {await: elapsed, for: {{ttl 0.4}}}
  - {observe: "keys:lock-0", on: service}
  - {do: release, user: A, outcome: any}
expect: {double_grants: "0", orphans: "0", judged: ">=1"}
`,
	},
	{
		Name: "anew", Quick: true, free: outlived, needs: expiring,
		Claim: "A holder has lost the lock, and asks for it again without a release. It does not get it while another user has it.",
		text: `workload: {}
steps:
  - {do: acquire, user: A}
` + stop + `  - {do: acquire, user: B, within: {{.Long}}}
` + goOn + `  - {do: acquire, user: A, outcome: any, within: {{ttl 0.25}}}
  - {do: release, user: B, outcome: any}
  - {do: release, user: A, outcome: any}
expect: {double_grants: "0", judged: ">=2"}
`,
	},
	unfenced(faulty("holder-pauses", "Holders are paused for longer than their grants last.", expiring,
		`{use: pause, on: holder, at: 1s, for: {{ttl 2}}, every: {{ttl 3}}}`)),
	unfenced(renewingPauses("renewing-pauses", "Holders that extend their grants are paused for longer than these last.", "holder", renewable)),
	renewingPauses("renewing-server-pauses", "Holders extend their grants, and of the servers of which a majority is asked one is paused.", "one", both(renewable, func(s Subject) string {
		if s.Backend != "redlock" {
			return "no majority of independent servers is asked"
		}
		return ""
	})),
	faulty("holder-crashes", "Holders are killed.", nil, `{use: kill, on: holder, at: 1s}`, `{use: kill, on: holder, at: {{ttl 3}}}`),
	unfenced(faulty("holder-cut-off", "Holders are cut off from the service for longer than their grants last.", expiring,
		`{use: partition, on: holder, from: all, at: 1s, for: {{ttl 2}}, every: {{ttl 3}}}`)),
	faulty("slow-network", "What clients send and are sent comes late.", nil, `{use: delay, on: clients, to: all, by: {{ttl 0.1}}, at: 1s, for: {{ttl 3}}}`),
	faulty("client-clock", "The wall clock of a client goes ahead, and later back.", nil,
		`{use: clock-jump, on: client-1, by: +60s, at: 1s, for: {{ttl 1.5}}}`, `{use: clock-jump, on: client-1, by: -60s, at: {{ttl 4}}, for: {{ttl 1.5}}}`),
	serverClock(),
	serverPauses(),
	faulty("leader-crash", "The server that leads is killed, and comes back.", func(s Subject) string {
		if !slices.Contains(leads, s.Backend) {
			return "no server takes over from another without a loss of grants"
		}
		return ""
	}, `{use: kill, on: leader, at: 1s, for: {{ttl 1}}}`),
	answers, givesUp, waiting, slowReplies,
}

// slowRelease has the end of A's grant come between the first request of its release and the second, in case there are two: a program that
// announces no points cannot be stopped there. What A sends takes D = TTL/5, and what it is sent no time. So A has its grant in hand when that begins at
// the service. A release that begins 0.7 TTL later, which is 1.5 D before the grant ends, is first heard of D/2 before that end. Its second request
// arrives D/2 after it, when B has the lock.
var slowRelease = Story{
	Name: "slow-release", free: outlived, lasts: 2, needs: both(both(processes, idle), func(s Subject) string {
		if s.Backend == "redlock" {
			return "the lock does not wait so long for any server"
		}
		return ""
	}),
	Claim: "What a holder sends comes late while it releases, and its grant ends meanwhile. The release must not free the grant of the next holder.",
	text: `workload: {}
steps:
  - {do: acquire, user: A} # so that it is connected, and the service knows its scripts
  - {do: release, user: A}
  - {inject: delay, on: A, to: all, by: {{ttl 0.2}}, direction: out, as: slow}
  - {do: acquire, user: A}
  - {do: acquire, user: B, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.7}}}
  - {do: release, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.6}}}
  - {heal: slow}
  - {do: acquire, user: C, outcome: any, within: {{ttl 0.2}}}
  - {do: release, user: B, outcome: any, within: {{.Long}}}
  - {do: release, user: C, outcome: any, within: {{.Long}}}
expect: {double_grants: "0", judged: ">=2"}
`,
}

// faulty is a story of users that fight while faults come.
func faulty(name, claim string, needs func(Subject) string, faults ...string) Story {
	if needs == nil {
		needs = processes
	} else {
		needs = both(processes, needs)
	}
	return Story{
		Name: name, Claim: claim, needs: needs, lasts: 7,
		text: strings.Replace(broken, "FAULTS", "  - "+strings.Join(faults, "\n  - "), 1),
	}
}

// What no lock prevents once holders outlive their grants: they are inside next to the next holder, and release nothing. A resource without a fence
// applies their writes.
var (
	outlived         = []string{"overlapping_holds", "releases_of_nothing"}
	outlivedUnfenced = append(slices.Clone(outlived), "stale_writes", "lost_updates")
)

// unfenced is a story in which holders outlive their grants, and nothing refuses what they write.
func unfenced(t Story) Story {
	t.free = outlivedUnfenced
	return t
}

// renewingPauses has users extend what they hold while somebody is paused now and then.
func renewingPauses(name, claim, on string, needs func(Subject) string) Story {
	return Story{
		Name: name, Claim: claim, needs: both(processes, needs), lasts: 7,
		text: `workload: {use: hold-renew, clients: {{.Clients}}, users: 1, hold: {{ttl 1.5}}, touch: 100ms, resource: {use: register, guard: none}}
chaos:
  - {use: pause, on: ` + on + `, at: 1s, for: {{ttl 2}}, every: {{ttl 3}}}
run: {for: {{ttl 7}}}
expect: {double_grants: "0", stuck_locks: "0", judged: ">=3"}
`,
	}
}

// serverClock moves the clocks of servers. A lock that says that its ends are told by such a clock may grant twice then, and no more.
func serverClock() Story {
	s := faulty("server-clock", "The wall clock of a server goes ahead, and later back.", nil,
		`{use: clock-jump, on: one, by: +60s, at: 1s, for: {{ttl 1.5}}}`, `{use: clock-jump, on: one, by: -60s, at: {{ttl 4}}, for: {{ttl 1.5}}}`)
	s.free = outlived
	s.text = strings.Replace(s.text, `double_grants: "0"`,
		`double_grants: "{{if .Lock.Offers.WallClock}}>=0", stale_writes: ">=0", lost_updates: ">={{end}}0"`, 1)
	return s
}

// serverPauses pauses servers. The judge's bound of a stuck lock knows nothing of the time in which the service answers nobody.
func serverPauses() Story {
	s := faulty("server-pauses", "Servers are paused for a part of the TTL.", whole, `{use: pause, on: one, at: 1s, for: {{ttl 0.5}}, every: {{ttl 2}}}`)
	s.text = strings.Replace(s.text, `stuck_locks: "0"`, `stuck_ms_max: "<{{.PatienceAfter (ttl 0.5)}}"`, 1)
	return s
}

// cutOff cuts A off from what the service sends while it is in a call, for longer than its grant lasts.
func cutOff(name, claim, call string, needs func(Subject) string) Story {
	before := ""
	if call != "acquire" {
		before = "  - {do: acquire, user: A}\n"
	}
	return Story{
		Name: name, Claim: claim, free: outlived, needs: both(processes, needs), lasts: 3,
		text: `workload: {timeout: {{.Long}}}
steps:
` + before + `  - {inject: partition, on: A, from: all, direction: in, as: cut}
  - {do: ` + call + `, user: A, async: true, outcome: any, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 2}}, within: {{.Long}}}
  - {do: acquire, user: B, within: {{.Long}}}
  - {heal: cut}
  - {do: acquire, user: C, outcome: any, within: 500ms}
  - {do: release, user: B, outcome: any}
  - {do: release, user: C, outcome: any}
expect: {double_grants: "0", judged: ">=1"}
`,
	}
}

// Draw says what is drawn.
type Draw struct {
	Faults []string          // none: pause, partition, delay
	On     []string          // targets; none: holder, clients
	For    time.Duration     // 0: ten TTLs
	Expect map[string]string // beside what every such story expects, or in its place
}

// Random is users that fight while faults come that are drawn from the seed. Holders may outlive their grants.
func Random(seed uint64, d Draw) Story {
	if len(d.Faults) == 0 {
		d.Faults = []string{"pause", "partition", "{use: delay, to: all, by: {{ttl 0.1}}}"}
	}
	if len(d.On) == 0 {
		d.On = []string{"holder", "client-1"}
	}
	t := Story{Name: "random", Claim: "Users fight while faults come that are drawn.", free: outlivedUnfenced, needs: processes, lasts: 10}
	length := "{{ttl 10}}"
	if d.For > 0 {
		t.lasts, t.fixed, length = 0, d.For, d.For.String()
	}
	expect := map[string]string{"double_grants": "0", "stuck_locks": "0", "judged": ">=10"}
	maps.Copy(expect, d.Expect)
	var named []string
	for _, name := range slices.Sorted(maps.Keys(expect)) {
		named = append(named, fmt.Sprintf("%s: %q", name, expect[name]))
	}
	t.text = `workload: {use: counter, clients: {{.Clients}}, users: 2, hold: 30ms, resource: {use: register, guard: none}}
chaos:
  random: [` + strings.Join(d.Faults, ", ") + `]
  on: [` + strings.Join(d.On, ", ") + `]
  for: {{ttl 0.5}}..{{ttl 2}}
  mean_gap: {{ttl 1}}
  spare: majority
run: {for: ` + length + `, seed: ` + strconv.FormatUint(seed, 10) + `}
expect: {` + strings.Join(named, ", ") + `}
`
	return t
}
