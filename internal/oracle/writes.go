package oracle

import (
	"github.com/lockquake/lockquake/history"
)

// account is what the writes of one lock meant.
type account struct {
	acked []int64 // the values of acknowledged writes
	sum   int64   // what these added
	doubt int64   // how much writes of unknown outcome may have changed
	final *int64
	onto  map[int64]int64 // what each element was added to
}

// off is how far the final value is from all that it may be.
func (a *account) off(final int64) int64 { return max(0, final-a.sum-a.doubt, a.sum-a.doubt-final) }

// writes counts what is missing at the end.
func (j *judge) writes(counts map[string]int64) {
	type place struct {
		user history.User
		lock uint16
	}
	type write struct{ value, added int64 }
	accounts, read, pending := map[uint16]*account{}, map[place]int64{}, map[key]write{}
	for i := range j.events {
		e := &j.events[i]
		if accounts[e.Lock] == nil {
			accounts[e.Lock] = &account{onto: map[int64]int64{}}
		}
		a, k := accounts[e.Lock], key{e.User, e.Op}
		w, found := pending[k]
		switch {
		case e.Kind == history.Final:
			a.final = &e.Value
		case e.Kind == history.Read && e.Phase == history.Ok:
			read[place{e.User, e.Lock}] = e.Value
		case e.Kind != history.Write:
		case e.Phase == history.Invoke:
			a.onto[e.Value] = read[place{e.User, e.Lock}]
			w = write{e.Value, e.Value - a.onto[e.Value]}
			pending[k] = w
			a.doubt += max(w.added, -w.added)
		case e.Phase != history.Info && found:
			delete(pending, k)
			a.doubt -= max(w.added, -w.added)
			if e.Phase == history.Ok {
				a.acked, a.sum = append(a.acked, e.Value), a.sum+w.added
				if j.run.Writes == "transfers" {
					read[place{e.User, e.Lock}] = w.value // the next change counts from there
				}
			}
		}
	}
	var lost, sold, booked, elements, accountsOff, acked int64
	var total account
	var final int64
	whole, known := true, true
	for _, a := range accounts {
		n := int64(len(a.acked))
		acked += n
		sold += max(0, n-j.run.Stock)
		if a.final == nil {
			whole = whole && n == 0
			continue
		}
		lost += max(0, n-*a.final)
		if a.off(*a.final) > 0 {
			accountsOff++
		}
		total.sum, total.doubt, final = total.sum+a.sum, total.doubt+a.doubt, final+*a.final
		in := map[int64]bool{}
		for last := *a.final; last != 0 && !in[last]; last = a.onto[last] {
			if _, added := a.onto[last]; !added {
				known = false
			}
			in[last] = true
		}
		for _, v := range a.acked {
			if v != *a.final {
				booked++
			}
			if !in[v] {
				elements++
			}
		}
	}
	judged := j.run.Resource != "" && acked > 0
	if judged && j.run.Writes == "sales" {
		counts["units_oversold"] = sold
	}
	if judged = judged && whole; judged && j.run.Increments {
		counts["lost_updates"] = lost
	}
	if judged && j.run.Writes == "seats" {
		counts["double_bookings"] = booked
	}
	if judged && j.run.Writes == "elements" && known {
		counts["lost_elements"] = elements
	}
	if judged && j.run.Writes == "transfers" {
		counts["accounts_off"], counts["sum_off"] = accountsOff, total.off(final)
	}
}
