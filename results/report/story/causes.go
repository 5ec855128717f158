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
			return "its token is too low", "its token is lower than one that was seen before"
		}
		return fmt.Sprintf("%d was seen before", r.Token),
			fmt.Sprintf("its token is %d, and %d was seen before", of.Token, r.Token)
	case history.CauseTokenMissing:
		return "it has no token", "it shows no fencing token"
	case history.CauseVersionChanged:
		if r.Value == 0 {
			return fmt.Sprintf("version %d is gone", r.Token),
				fmt.Sprintf("it was made from version %d, which stands there no more", r.Token)
		}
		return fmt.Sprintf("read version %d, there is %d", r.Token, r.Value),
			fmt.Sprintf("version %d was read, and %d stands there", r.Token, r.Value)
	case history.CauseVersionMissing:
		return "it has read nothing", "it was made from nothing that was read"
	case history.CauseOwnerChanged:
		return "it is not registered", "another grant is registered, or none"
	case history.CauseOwnerMissing:
		return "it has no name", "the grant has no name of its own"
	case history.CauseSequencerEnded:
		return "its sequencer has ended",
			fmt.Sprintf("the lock service says that its sequencer (token %d) describes the lock no more", r.Token)
	case history.CauseKeyGone:
		return "its key is gone", "the key that was granted is gone, or another's"
	case history.CauseConditionFalse:
		return "its condition is false", "the condition of the statement itself did not hold"
	case history.CauseKeyTaken:
		return "the key is taken", "a row with that unique key is there already"
	case history.CauseTooLate:
		return "too late by " + figure.Duration(r.Value), "its validity was over " + figure.Duration(r.Value) +
			" before all replies were in"
	case history.CauseWaitOver:
		if of.Phase == history.Info {
			return "held; gave up after " + figure.Duration(r.Value),
				"the lock was held whenever it asked, until its deadline after " + figure.Duration(r.Value) +
					"; its last request has no answer"
		}
		return "held; gave up after " + figure.Duration(r.Value), "the lock is held, and the wait was given up after " +
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
		return "too few replicas heard", "the server takes no writes, for it has heard of too few replicas lately"
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
