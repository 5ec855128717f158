package stories

// truthful is what stories expect in which a holder extends or gives back: what it is told is what the service has.
const truthful = `{{if .Asked}}false_results: "0", {{if not .Lock.YesToGone}}releases_of_nothing: "0", {{end}}{{end}}`

// answers has one user alone go through all that a lock can be asked for. Of the locks that come with lockquake the dearest, Redlock, takes 15 requests to
// its five servers for a release.
var answers = Story{
	Name: "answers", Quick: true, needs: asked,
	Claim: "A user takes the lock, extends it, and gives it back. What it is told is what the service has, and nothing stays behind.",
	text: `workload: {}
steps:
  - {do: acquire, user: A}
{{- if eq .Lock.Offers.Renewal "call"}}
  - {do: renew, user: A, outcome: any}
{{- end}}
  - {do: release, user: A, outcome: any}
  - {observe: "keys:lock-0", on: service}
  - {do: acquire, user: A, outcome: any} # once more, to count what a release costs when nothing has to be made ready any more
  - {do: release, user: A, outcome: any}
expect: {double_grants: "0", false_results: "0", orphans: "0", {{if .CountsCalls}}requests_per_acquire: "<40", requests_per_release: "<40", {{end}}judged: ">=1"}
`,
}

// givesUp has a user wait in vain. Nothing is broken, so nothing may be left of it.
var givesUp = Story{
	Name: "gives-up", Quick: true, needs: asked,
	Claim: "A user waits for the lock and gives up, and then the holder releases it. Nobody has the lock now.",
	text: `workload: {}
steps:
  - {do: acquire, user: A}
  - {do: acquire, user: B, outcome: not-ok, within: {{ttl 0.2}}}
  - {do: release, user: A, outcome: any}
  - {observe: "keys:lock-0", on: service}
  - {await: elapsed, for: {{ttl 0.1}}} # what is on its way arrives
  - {observe: "keys:lock-0", on: service}
expect: {double_grants: "0", false_results: "0", orphans: "0", judged: ">=1"}
`,
}

// waiting has one user hold the lock for most of a TTL, and one wait: a mistake of the first waiter in a queue would not be seen among many
// who wait as they should. Who polls every 10 ms asks 100 times a second; each time may take a few requests. Such a waiter takes some 5 % of a core, and in a JVM
// that has just begun not much more; one that loops without a sleep takes all of one.
var waiting = Story{
	Name: "waiting", Quick: true, needs: counted, lasts: 3,
	Claim: "One user holds the lock for long while another waits. It does not ask again without a pause.",
	text: `workload: {use: acquire-release, clients: 2, users: 1, hold: {{ttl 0.7}}}
run: {for: {{ttl 3}}}
expect: {double_grants: "0", requests_per_wait_s: "<500", {{if .CountsConnections}}connections_per_grant: "<10", {{end}}{{if not .InProcess}}client_cpu_ms_per_wait_s: "<400", {{end}}judged: ">=2"}
`,
}

// slowReplies has what the service answers to an acquire come when its user has given up. Then all is well again, and the library can
// clean up. Until then an orphan is nobody's fault, and a lock whose grants end has their ends to clean up by. So an orphan is held
// against the lock when it is older than what a dead holder may leave.
var slowReplies = Story{
	Name: "slow-replies", needs: both(processes, asked), lasts: 2.5,
	Claim: "What the service answers to an acquire comes when its user has given up. What was granted is not kept for longer than a dead holder's grant.",
	text: `workload: {}
steps:
  - {do: acquire, user: A} # so that it is connected: a handshake without an answer would keep the request back
  - {do: release, user: A}
  - {inject: partition, on: A, from: all, direction: in, as: cut}
  - {do: acquire, user: A, async: true, outcome: any, within: {{ttl 0.5}}} # that a call outlives its deadline is another story's matter
  - {await: elapsed, for: {{ttl 0.6}}}
  - {heal: cut}
  - {observe: "keys:lock-0", on: service, every: 50ms}
  - {await: elapsed, for: {{.Patience}}, within: {{.Long}}}
  - {await: elapsed, for: {{ttl 0.5}}} # beyond the bound by more than a machine stands still
  - {observe: "keys:lock-0", on: service}
  - {do: release, user: A, outcome: any, within: {{.Long}}} # where it was granted after all
  - {do: acquire, user: B, outcome: any, within: {{.Long}}}
  - {do: release, user: B, outcome: any}
expect: {double_grants: "0", orphans: ">=0", orphan_age_ms: "<{{.Patience}}", judged: ">=1"}
`,
}
