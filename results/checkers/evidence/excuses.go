package evidence

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Stay is something that lasted too long, such as a hold, or an effect of it, after the end of its validity. It
// is excused if a process stood still for longer than the delay.
type Stay struct {
	User       history.User
	Lock       uint16
	Start, End int64 // ns: of the stay
	Late       int64 // ns: time after the end of the validity
	N          int64 // number of violations that it alone explains
}

// Processes selects the processes whose standstill may explain a stay.
type Processes func(run results.Run, s Stay) func(process string) bool

// Anyone selects every process of lockquake.
func Anyone(results.Run, Stay) func(process string) bool { return results.AnyProcess }

// Own selects the process of the user.
func Own(_ results.Run, s Stay) func(process string) bool {
	name := history.ClientName(s.User.Client())
	return func(process string) bool { return process == name }
}

// Involved selects the processes that a holder depends on: its own, the resource, which answers it, and in a run by
// steps the engine, which tells it to go on.
func Involved(run results.Run, s Stay) func(process string) bool {
	name := history.ClientName(s.User.Client())
	return func(process string) bool {
		_, client := history.ClientOf(process)
		return process == name || !client && (process != history.Engine || run.Directed)
	}
}

// Excused reports whether the stay would have ended in time without standstills of the processes, and returns the
// longest standstill.
func Excused(run results.Run, s Stay, among Processes) (results.Standstill, bool) {
	x := run.Still.Longest(s.Start, s.End, among(run, s))
	return x, x.Total > s.Late
}

// delayed reports whether a wait would have ended in time without standstills of the processes, as many as can delay
// a hand-over, and returns the longest standstill.
func delayed(run results.Run, s Stay, among Processes) (results.Standstill, bool) {
	x := run.Still.Longest(s.Start, s.End, among(run, s))
	return x, run.Still.Delay(s.Start, s.End, among(run, s)) > s.Late
}

// Excuses returns which of the stays are excused.
func Excuses(run results.Run, list []Stay, among Processes) *results.Ledger {
	return ledger(run, list, among, Excused)
}

// ExcuseWaits returns which of the waits are excused.
func ExcuseWaits(run results.Run, list []Stay, among Processes) *results.Ledger {
	return ledger(run, list, among, delayed)
}

func ledger(run results.Run, list []Stay, among Processes,
	judge func(results.Run, Stay, Processes) (results.Standstill, bool),
) *results.Ledger {
	l := results.NewLedger()
	for _, s := range list {
		x, ok := judge(run, s, among)
		l.Add(run, s.Lock, 1, x, ok)
	}
	return l
}
