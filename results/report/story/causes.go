package story

import (
	"fmt"
	"math"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/results/figure"
)

// causeWords returns a reason in a few words for a picture, and as a sentence. of is the event that it explains.
func causeWords(r, of history.Event) (short, long string) {
	switch r.Code {
	case history.CauseTokenLower:
		if r.Token == 0 {
			return "its token is too low", "its token is lower than one seen before"
		}
		return fmt.Sprintf("%d was seen before", r.Token),
			fmt.Sprintf("its token is %d, but %d was seen before", of.Token, r.Token)
	case history.CauseTokenMissing:
		return "it has no token", "it shows no fencing token"
	case history.CauseVersionChanged:
		if r.Value == 0 {
			return fmt.Sprintf("version %d is gone", r.Token),
				fmt.Sprintf("it is based on version %d, which is no longer current", r.Token)
		}
		return fmt.Sprintf("read version %d, there is %d", r.Token, r.Value),
			fmt.Sprintf("version %d was read, but %d is current", r.Token, r.Value)
	case history.CauseVersionMissing:
		return "it has read nothing", "it is not based on a read"
	case history.CauseOwnerChanged:
		return "it is not registered", "another grant is registered, or none"
	case history.CauseOwnerMissing:
		return "it has no name", "the grant has no name of its own"
	case history.CauseSequencerEnded:
		return "its sequencer has ended",
			fmt.Sprintf("according to the lock service, its sequencer (token %d) is no longer valid", r.Token)
	case history.CauseKeyGone:
		return "its key is gone", "the granted key is gone or belongs to another user"
	case history.CauseConditionFalse:
		return "its condition is false", "the condition of the statement itself did not hold"
	case history.CauseKeyTaken:
		return "the key is taken", "a row with that unique key exists"
	case history.CauseTooLate:
		return "too late by " + figure.Duration(r.Value), "its validity ended " + figure.Duration(r.Value) +
			" before all replies were in"
	case history.CauseWaitOver:
		if of.Phase == history.Info {
			return "held; gave up after " + figure.Duration(r.Value),
				"the lock was held at each attempt, until its deadline after " + figure.Duration(r.Value) +
					"; its last request has no answer"
		}
		return "held; gave up after " + figure.Duration(r.Value), "the lock is held; the wait was given up after " +
			figure.Duration(r.Value)
	case history.CauseNoMajority:
		return "no majority: " + answers(r, "yes", "no"),
			fmt.Sprintf("no majority: of %d servers %s", r.Value, answers(r, "said yes", "said no"))
	case history.CauseNotReplicated:
		acked := "no replica"
		if n := r.Token & math.MaxUint32; n > 0 {
			acked = fmt.Sprintf("only %d of %d replicas", n, r.Token>>32)
		}
		return acked + " in " + figure.Duration(r.Value), acked + " acknowledged the key within " +
			figure.Duration(r.Value)
	case history.CauseFewReplicas:
		return "too few replicas heard", "the server rejects writes: too few replicas reported lately"
	}
	return "", ""
}

// answers says how many servers gave which answer.
func answers(r history.Event, yes, no string) string {
	v := lock.VoteOf(r.Token)
	var out []string
	for _, x := range []struct {
		n    uint8
		what string
	}{
		{v.Yes, yes},
		{v.No, no},
		{v.Refused, "answered with an error"},
		{v.NotSent, "could not be reached"},
		{v.Silent, "did not answer"},
	} {
		if x.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return figure.List(out)
}
