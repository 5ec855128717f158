package history

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Nonsense is the error for an impossible event in an undamaged file.
type Nonsense struct {
	Process string // whose history tells of it
	Seq     uint32 // its place there
	what    string
	why     string
}

// Error says which event of the process it is, and what is wrong with it.
func (n *Nonsense) Error() string {
	return fmt.Sprintf("event %d (%s) is inconsistent: %s", n.Seq, n.what, n.why)
}

// nonsense makes the error for e.
func nonsense(process string, e *Event, format string, args ...any) error {
	return &Nonsense{
		Process: process, Seq: e.Seq, what: fmt.Sprintf("%v %v of %v", e.Kind, e.Phase, e.User),
		why: fmt.Sprintf(format, args...),
	}
}

// ClientOf returns the index of the client whose process has that name: 0 for "client-1"; ok is false for every other
// process.
func ClientOf(process string) (index int, ok bool) {
	digits, ok := strings.CutPrefix(process, "client-")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n < 1 || n > 1<<16 || strconv.FormatUint(n, 10) != digits {
		return 0, false
	}
	return int(n - 1), true
}

// ClientName returns the name of the process of the client with that index.
func ClientName(index int) string { return "client-" + strconv.Itoa(index+1) }

// maxTime bounds the times of events, so that two of them can be added without overflow.
const maxTime = math.MaxInt64 / 2

// writer is a set of kinds of processes: those that may record a kind of event.
type writer uint8

const (
	byClient writer = 1 << iota
	byResource
	byEngine
)

var writerNames = map[writer]string{byClient: "a client", byResource: "a resource", byEngine: "the engine"}

// phases is a set of phases.
type phases uint8

func set(list ...Phase) (s phases) {
	for _, p := range list {
		s |= 1 << p
	}
	return s
}

// rule says which processes record a kind of event, and in which phases.
type rule struct {
	by     writer
	phases phases
}

// rules are those of all kinds. No process records the trailer, which is no event.
var rules = [kindEnd]rule{
	Acquire: {byClient, whole}, Release: {byClient, whole}, Renew: {byClient, whole}, Check: {byClient, whole},
	Read: {byClient, whole}, Write: {byClient, whole}, Renewed: {byClient, alone}, Lost: {byClient, alone},
	Dead: {byEngine, alone}, Ended: {byEngine, alone}, Final: {byEngine | byResource, alone},
	EffectRead: {byResource, served}, EffectWrite: {byResource, served},
	Reason: {byClient | byResource, alone}, Cancel: {byClient, alone}, Close: {byClient, whole},
	Reenter: {byClient, whole}, Leave: {byClient, whole}, ReleaseUnheld: {byClient, whole},
	Stall: {byClient | byResource | byEngine, alone}, Dropped: {byClient | byResource | byEngine, alone},
}

var (
	whole  = set(Invoke, Ok, Fail, Info)
	alone  = set(Info)
	served = set(Ok, Fail)
)

// isOperation tells whether events of this kind come in pairs.
func (k Kind) isOperation() bool {
	return k >= Acquire && k <= Write || k >= Close && k <= ReleaseUnheld
}

// explains tells whether events of this kind are about an event before them, at Op.
func (k Kind) explains() bool { return k == Reason || k == Cancel }

// ofGrant tells whether events of this kind belong to a grant.
func (k Kind) ofGrant() bool {
	switch k {
	case Acquire, Stall, Dropped, Final, Clean, Reason, Cancel, Close, ReleaseUnheld:
		return false
	}
	return true
}
