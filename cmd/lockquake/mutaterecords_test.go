package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// mutateRecords changes the events of a history and corrects its sequence numbers, checksums and trailer.
func mutateRecords(r *rand.Rand, run runFiles, how ...func(*rand.Rand, []history.Event) ([]history.Event, string)) string {
	name := fileOf(r, run, ".lqh")
	head := bytes.IndexByte(run[name], '\n') + 1
	var es []history.Event
	for b := run[name][head:]; len(b) >= history.RecordSize; b = b[history.RecordSize:] {
		var e history.Event
		if history.DecodeRecord(b, &e) == nil && e.Kind != history.Clean {
			es = append(es, e)
		}
	}
	what := ""
	for _, h := range how {
		var did string
		es, did = h(r, es)
		what += " " + did
	}
	follow, monotone := r.IntN(2) == 0, r.IntN(4) > 0
	renumber(es, follow, monotone)
	b := run[name][:head:head]
	last := history.Event{}
	for i := range es {
		b = history.AppendRecord(b, &es[i])
		last = es[i]
	}
	end := history.Event{Time: last.Time, Seq: last.Seq + 1, Kind: history.Clean, Phase: history.Info, Value: int64(len(es))}
	end.Op = end.Seq
	run[name] = history.AppendRecord(b, &end)
	return name + ":" + what
}

// renumber numbers the events. With follow, ops and grants that refer to moved events are adjusted. With monotone,
// time never runs back.
func renumber(es []history.Event, follow, monotone bool) {
	moved := map[uint32]uint32{}
	for i := range es {
		moved[es[i].Seq] = uint32(i + 1)
	}
	for i := range es {
		e := &es[i]
		if follow {
			if to, ok := moved[e.Op]; ok {
				e.Op = to
			}
			if to, ok := moved[e.Grant]; ok {
				e.Grant = to
			}
		}
		e.Seq = uint32(i + 1)
		if monotone && i > 0 {
			e.Time = max(e.Time, es[i-1].Time)
		}
	}
}

// changeField changes a field of one event.
func changeField(r *rand.Rand, es []history.Event) ([]history.Event, string) {
	if len(es) == 0 {
		return inventRecords(r, es)
	}
	i := r.IntN(len(es))
	e, other := &es[i], es[r.IntN(len(es))]
	small := func(old, near uint32) uint32 { return pick(r, 0, 1, old+1, old-1, near, math.MaxUint32, r.Uint32()) }
	wide := func(old, near int64) int64 {
		return pick(r, 0, 1, -1, old+1, old-1, near, near+1e9, math.MaxInt64, math.MaxInt64-1, math.MinInt64, math.MinInt64+1, r.Int64())
	}
	field := pick(r, "time", "op", "user", "grant", "lock", "kind", "phase", "mode", "code", "token", "valid", "value")
	switch field {
	case "time":
		e.Time = wide(e.Time, other.Time)
	case "op":
		e.Op = small(e.Op, other.Op)
	case "user":
		e.User = history.User(small(uint32(e.User), uint32(other.User)))
	case "grant":
		e.Grant = small(e.Grant, other.Grant)
	case "lock":
		e.Lock = uint16(small(uint32(e.Lock), uint32(other.Lock)))
	case "kind":
		e.Kind = history.Kind(r.IntN(18))
	case "phase":
		e.Phase = history.Phase(r.IntN(6))
	case "mode":
		e.Mode = uint8(pick(r, 0, 1, 2, 255))
	case "code":
		e.Code = uint8(r.IntN(12))
	case "token":
		e.Token = uint64(wide(int64(e.Token), int64(other.Token)))
	case "valid":
		e.Valid = wide(e.Valid, other.Valid)
	case "value":
		e.Value = wide(e.Value, other.Value)
	}
	return es, fmt.Sprintf("%s of event %d", field, i+1)
}

// changeAll sets one field of all events to the same value.
func changeAll(r *rand.Rand, es []history.Event) ([]history.Event, string) {
	n := r.IntN(6)
	for i := range es {
		e := &es[i]
		switch n {
		case 0:
			e.User = history.MakeUser(e.User.Client(), 65535)
		case 1:
			e.User = history.MakeUser(e.User.Client(), 65535-i%100)
		case 2:
			e.Valid = 0
		case 3:
			e.User = history.MakeUser(0, 0)
		case 4:
			e.Grant = 0
		case 5:
			e.User = history.User(r.Uint32())
		}
	}
	return es, fmt.Sprintf("all events, way %d", n)
}

// moveRecords swaps, duplicates, removes and moves events.
func moveRecords(r *rand.Rand, es []history.Event) ([]history.Event, string) {
	if len(es) == 0 {
		return inventRecords(r, es)
	}
	i, j := r.IntN(len(es)), r.IntN(len(es))
	switch r.IntN(5) {
	case 0:
		es[i], es[j] = es[j], es[i]
		return es, fmt.Sprintf("events %d and %d swapped", i+1, j+1)
	case 1:
		return slices.Insert(es, j, es[i]), fmt.Sprintf("event %d also at %d", i+1, j+1)
	case 2:
		return slices.Delete(es, i, i+1), fmt.Sprintf("event %d out", i+1)
	case 3:
		return slices.Delete(es, min(i, j), max(i, j)), fmt.Sprintf("events %d to %d out", min(i, j)+1, max(i, j))
	default:
		return slices.Repeat(es, 3), "all three times"
	}
}

// inventRecords adds events that no client sent.
func inventRecords(r *rand.Rand, es []history.Event) ([]history.Event, string) {
	n := pick(r, 1, 3, 2000)
	for range n {
		e := history.Event{
			Time: r.Int64N(1 << 40), Op: r.Uint32N(100), User: history.User(r.Uint32()), Grant: r.Uint32N(100), Lock: uint16(r.IntN(4)),
			Kind: history.Kind(1 + r.IntN(16)), Phase: history.Phase(1 + r.IntN(4)), Mode: uint8(r.IntN(2)), Valid: r.Int64N(1 << 41), Value: r.Int64N(1 << 40),
		}
		if r.IntN(2) == 0 && len(es) > 0 {
			e.User, e.Time = es[0].User, es[len(es)-1].Time
		}
		es = append(es, e)
	}
	return es, fmt.Sprintf("%d events of nobody", n)
}
