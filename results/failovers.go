package results

import (
	"fmt"

	"github.com/lockquake/lockquake/results/rates"
)

// Failover is an injection that ended a server's process, whether another server took over or the same one came back.
type Failover struct {
	Fault int `json:"fault"` // its number among the injections of the run
	// locks of that server with an entitled holder when it was killed
	Held         int64 `json:"held"`
	DoubleGrants int64 `json:"double_grants"`      // after it, and before the next one
	Promoted     *bool `json:"promoted,omitempty"` // another server was observed as leader; nil: none was asked
	// lower bound of what the server had written and no replica had received; nil: unknown
	Lag *int64 `json:"lag_bytes,omitempty"`
}

// FailoverRate summarises the failovers of one run or of several.
type FailoverRate struct {
	N, Hit          int // failovers, and those with double grants
	Promoted, Asked int // failovers followed by another leader, and failovers for which that was asked
	DoubleGrants    int64
	Held            float64  // mean
	Lag             *float64 // mean of the known ones
	rates.Bunched
}

// RateOf pools one or more failovers. The double grants of one failover are at most the locks held.
func RateOf(fs []Failover) FailoverRate {
	r := FailoverRate{N: len(fs)}
	var doubles []int64
	var held, lag, lagged float64
	for _, f := range fs {
		doubles, held = append(doubles, f.DoubleGrants), held+float64(f.Held)
		r.DoubleGrants += f.DoubleGrants
		if f.DoubleGrants > 0 {
			r.Hit++
		}
		if f.Promoted != nil {
			r.Asked++
			if *f.Promoted {
				r.Promoted++
			}
		}
		if f.Lag != nil {
			lag, lagged = lag+float64(*f.Lag), lagged+1
		}
	}
	r.Held = held / float64(r.N)
	if lagged > 0 {
		r.Lag = new(lag / lagged)
	}
	r.Bunched = rates.Bunches(doubles, r.Held)
	return r
}

// Figures returns the measures of these names, including the ends of their intervals.
func (r FailoverRate) Figures() map[string]*float64 {
	out := map[string]*float64{
		"failovers": new(float64(r.N)), "failovers_with_double_grants": new(float64(r.Hit)),
		"held_at_failover": &r.Held, "lag_at_failover_bytes": r.Lag,
	}
	if r.Asked > 0 {
		out["promotions"] = new(float64(r.Promoted))
	}
	put := func(name string, e rates.Estimate) {
		out[name], out[name+"_low"], out[name+"_high"] = &e.Value, &e.Low, &e.High
	}
	put("failovers_with_double_grants_share", r.Share)
	put("double_grants_per_failover", r.Rate)
	if r.Size != nil {
		put("double_grants_when_any", *r.Size)
	}
	if r.Held > 0 {
		put("double_grants_per_held", r.Rate.Over(r.Held))
	}
	return out
}

// Text summarises the failovers for people. format formats a number.
func (r FailoverRate) Text(format func(float64) string) string {
	between := func(e rates.Estimate) string { return format(e.Low) + " to " + format(e.High) }
	percent := rates.Estimate{Value: 100 * r.Share.Value, Low: 100 * r.Share.Low, High: 100 * r.Share.High}
	text := fmt.Sprintf("%d of %d failovers had double grants: %s %% (95 %%: %s)", r.Hit, r.N, format(percent.Value),
		between(percent))
	if r.Size != nil {
		text += fmt.Sprintf("; one that had any, %s (%s)", format(r.Size.Value), between(*r.Size))
	}
	return text + fmt.Sprintf("; a failover, %s (%s), of %s locks held on the killed server",
		format(r.Rate.Value), between(r.Rate), format(r.Held))
}
