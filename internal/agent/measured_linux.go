package agent

import (
	"slices"
	"time"
)

// sum describes what became of the datagrams.
func (f *gaugeFlow) sum(size int) (Flow, error) {
	var damaged uint64
	err := f.to.space.do(func() (err error) { damaged, err = wrongChecksums(); return err })
	f.mu.Lock()
	defer f.mu.Unlock()
	out := Flow{Sent: len(f.sent), Arrived: f.seen, Copies: f.copies, Damaged: damaged - f.to.damaged}
	var oneWay, round []time.Duration
	var first, last, latest int64
	for i, at := range f.arrived {
		if at == 0 {
			continue
		}
		oneWay = append(oneWay, time.Duration(at-f.sent[i]))
		if f.echoed[i] != 0 {
			round = append(round, time.Duration(f.echoed[i]-f.sent[i]))
		}
		if at < latest {
			out.Leapt++
		}
		latest = max(latest, at)
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	out.OneWay, out.Round = spread(oneWay), spread(round)
	if last > first {
		out.Bits = float64((f.seen-1)*(size+wireHead)*8) / time.Duration(last-first).Seconds()
	}
	return out, err
}

func spread(d []time.Duration) Spread {
	if len(d) == 0 {
		return Spread{}
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1)+0.5)] }
	return Spread{Low: at(0.05), Mid: at(0.5), High: at(0.95), Max: d[len(d)-1]}
}
