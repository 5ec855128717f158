package checkers

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// overstay is something that lasted too long, such as a hold, or an effect of it, after the end of its validity. It
// is excused if a process stood still for longer than the delay.
type overstay struct {
	user       history.User
	lock       uint16
	start, end int64 // ns: of the overstay
	late       int64 // ns: time after the end of the validity
	n          int64 // number of violations that it alone explains
}

// overstayed returns by how much a hold had outlived its validity at until. The stay begins with the request, because
// validity is counted from there. It has lateness 0 and no start or end if nothing can excuse it: the hold never
// ended, its validity is unknown, or it was not over.
func overstayed(h *hold, until int64) overstay {
	o := overstay{user: h.user, lock: h.lock}
	valid := h.until()
	if valid == 0 {
		valid = h.valid
	}
	if valid == history.ValidUnknown || until == results.Forever || valid >= until {
		return o
	}
	o.start, o.end, o.late = h.start, until, until-valid
	if h.issued > 0 {
		o.start = min(o.start, h.issued)
	}
	return o
}

// processes selects the processes whose standstill may explain an overstay.
type processes func(run results.Run, o overstay) func(process string) bool

// anyone selects every process of lockquake.
func anyone(results.Run, overstay) func(process string) bool { return results.AnyProcess }

// own selects the process of the user.
func own(_ results.Run, o overstay) func(process string) bool {
	name := history.ClientName(o.user.Client())
	return func(process string) bool { return process == name }
}

// involved selects the processes that a holder depends on: its own, the resource, which answers it, and in a run by
// steps the engine, which tells it to go on.
func involved(run results.Run, o overstay) func(process string) bool {
	name := history.ClientName(o.user.Client())
	return func(process string) bool {
		_, client := history.ClientOf(process)
		return process == name || !client && (process != history.Engine || run.Directed)
	}
}

// excused reports whether the stay would have ended in time without standstills of the processes, and returns the
// longest standstill.
func excused(run results.Run, o overstay, among processes) (results.Standstill, bool) {
	x := run.Still.Longest(o.start, o.end, among(run, o))
	return x, x.Total > o.late
}

// delayed reports whether a wait would have ended in time without standstills of the processes, as many as can delay
// a hand-over, and returns the longest standstill.
func delayed(run results.Run, o overstay, among processes) (results.Standstill, bool) {
	x := run.Still.Longest(o.start, o.end, among(run, o))
	return x, run.Still.Delay(o.start, o.end, among(run, o)) > o.late
}

// excuses returns which of the stays are excused.
func excuses(run results.Run, list []overstay, among processes) *results.Ledger {
	return ledger(run, list, among, excused)
}

// excuseWaits returns which of the waits are excused.
func excuseWaits(run results.Run, list []overstay, among processes) *results.Ledger {
	return ledger(run, list, among, delayed)
}

func ledger(run results.Run, list []overstay, among processes,
	judge func(results.Run, overstay, processes) (results.Standstill, bool),
) *results.Ledger {
	l := results.NewLedger()
	for _, o := range list {
		x, ok := judge(run, o, among)
		l.Add(run, o.lock, 1, x, ok)
	}
	return l
}

// standingStill names the process whose standstill alone explains the length of h. It ends a witness's sentence.
func standingStill(run results.Run, h *hold, until int64) string {
	if why, ok := excused(run, overstayed(h, until), involved); ok {
		return "; " + why.Text(run)
	}
	return ""
}
