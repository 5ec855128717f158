package capacity

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/results/figure"
)

// Answered is the answer of the runs at one rate: whether a lock carries it.
type Answered string

// The answers. NobodyCanSay needs other runs: the generator was late, runs differ, or there were too few.
const (
	Yes          Answered = "yes"
	No           Answered = "no"
	NobodyCanSay Answered = "unknown"
)

// Answer is one line: whether a lock carries a rate at the objective.
type Answer struct {
	Setting // of the curve
	Rate    float64
	Said    Answered
	Text    string
}

// LeastRuns is the number of runs that must agree on an answer.
const LeastRuns = 3

// Answers returns an answer for each curve and each requested rate, in their order. It is empty unless rates were
// requested with an objective.
func (a Analysis) Answers() (out []Answer) {
	if a.Objective == nil {
		return nil
	}
	for _, c := range a.Curves {
		for _, rate := range a.Asked {
			said, why := a.answer(c, rate)
			text := fmt.Sprintf("%s: %s", a.subject(c), said)
			if said == Yes {
				text += ", " + why
			} else {
				text += ": " + why
			}
			if p := c.peak(); p != "" && said != No {
				text += "; " + p
			}
			out = append(out, Answer{Setting: c.Setting, Rate: rate, Said: said, Text: text})
		}
	}
	return out
}

// subject names a curve as briefly as the others allow: redis, redis/redsync, or "redis, RTT 5 ms".
func (a Analysis) subject(c Curve) string {
	name := c.Backend
	var same []Curve
	for _, d := range a.Curves {
		switch {
		case d.Backend == c.Backend && d.Lock == c.Lock:
			same = append(same, d)
		case d.Backend == c.Backend:
			name = c.Backend + "/" + c.Lock
		}
	}
	if more := differing(c, same); more != "" {
		name += ", " + more
	}
	return name
}

// answer judges the runs of a curve at a rate.
func (a Analysis) answer(c Curve, rate float64) (Answered, string) {
	i := slices.IndexFunc(c.Open, func(r Reading) bool { return r.Rate == rate })
	per := figure.Number(rate) + "/s"
	if i < 0 {
		why := "no run was made at " + per
		for _, l := range c.Left {
			if l.Rate == rate {
				why += ": " + l.Why
			}
		}
		return NobodyCanSay, why
	}
	r := c.Open[i]
	t, runs := r.Tried, figure.Of(r.Tried.Runs(), "run")
	quantile := dotted(a.Objective.name())
	took := "no acquire was timed"
	if l, ok := r.Latency[a.Objective.name()]; ok {
		took = quantile + " " + span(l)
	}
	switch {
	case t.Failed > 0 && t.Kept > 0:
		return NobodyCanSay, fmt.Sprintf("%d of %s at %s kept %s, %d did not (%s): lower the rate, or make runs longer with --for", t.Kept, runs, per, a.Objective, t.Failed, took)
	case t.Late > 0 && t.Kept+t.Failed < LeastRuns:
		return NobodyCanSay, fmt.Sprintf("the load generator was late in %d of %s at %s: %s", t.Late, runs, per,
			lessToDo)
	case t.Spoilt > 0 && t.Kept+t.Failed < LeastRuns:
		why := "too few acquires were timed; " + longerRuns
		if len(r.Spoilt) > 0 {
			why = r.Spoilt[0]
		}
		return NobodyCanSay, fmt.Sprintf("%d of %s at %s cannot be used: %s", t.Spoilt, runs, per, why)
	case t.Kept+t.Failed < LeastRuns:
		return NobodyCanSay, fmt.Sprintf("%s at %s, but an answer needs %d: %s", runs, per, LeastRuns, moreTime)
	case t.Failed > 0:
		return No, c.misses(r, took)
	case t.acquires < figure.Samples(a.Objective.Quantile):
		return NobodyCanSay, fmt.Sprintf("%s at %s, but %s needs %s: %s",
			figure.Of(t.acquires, "acquire"), per, quantile, figure.Count(figure.Samples(a.Objective.Quantile)),
			longerRuns)
	}
	return Yes, fmt.Sprintf("%s at %s", took, per)
}

// misses says how a rate was missed, and names the limit in the closed loop, where the lock does all that it can.
func (c Curve) misses(r Reading, took string) string {
	text := fmt.Sprintf("%s at %s/s", took, figure.Number(r.Rate))
	if r.Verdicts["fail"] > 0 {
		return fmt.Sprintf("the lock broke its promise in %d of %s at %s/s", r.Verdicts["fail"], figure.Of(r.Samples, "run"),
			figure.Number(r.Rate))
	}
	if r.Cycles.Mid < servedPart*r.Rate {
		text = fmt.Sprintf("%s/s of %s are served", figure.Number(r.Cycles.Mid), figure.Number(r.Rate))
	}
	limit := r.Limit
	for _, closed := range c.Closed {
		if len(closed.Marks) == 0 {
			limit = closed.Limit
		}
	}
	if limit.Cause != Unknown {
		return text + "; " + string(limit.Cause) + " is the limit"
	}
	return text + "; the limit is " + limit.String()
}

// peak describes the lock's throughput without a rate. Even a single run is a lower bound, whatever limits it.
func (c Curve) peak() string {
	most := 0.0
	for _, r := range c.Closed {
		if len(r.Wrong) == 0 {
			most = max(most, r.Cycles.Mid)
		}
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf("peak at least %s/s (not confirmed)", figure.Number(round(most)))
}

// Worst returns the worst of several answers: a no before NobodyCanSay.
func Worst(answers []Answer) Answered {
	worst := Yes
	for _, a := range answers {
		if a.Said == No || worst == Yes {
			worst = a.Said
		}
	}
	return worst
}
