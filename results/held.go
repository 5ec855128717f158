package results

import "github.com/lockquake/lockquake/history"

// Held is a time in which a step held a user at a point: its client neither sends nor receives then.
type Held struct {
	Process  string // of its client
	From, To int64
}

// Held returns the times in which steps held users at points, in the order of arrival. A user that never went on was
// held to the end.
func (r Run) Held() (out []Held) {
	at := map[[2]string]int{} // by client and point: the index in out
	for i := range r.Observed {
		o := &r.Observed[i]
		if o.By != history.ByPoint {
			continue
		}
		key := [2]string{o.Node, o.Fact}
		switch n, stands := at[key]; {
		case o.Answer == history.PointReached && !stands:
			at[key] = len(out)
			out = append(out, Held{o.Node, o.Answered, Forever})
		case o.Answer == history.PointLeft && stands:
			out[n].To = o.Asked
			delete(at, key)
		}
	}
	return out
}
