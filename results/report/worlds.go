package report

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// validityMarks adds the ends of validity: within a hold always, after it only where being entitled is the point.
func (s *story) validityMarks() {
	_, to := s.span()
	for _, h := range s.Holds {
		v := h.Ref.Valid
		switch {
		case v == history.ValidUnknown || v == history.ValidEndless:
			continue
		case h.Ref.End == 0 && v > to+(to-h.Ref.Start):
			continue // so far behind the picture that it would only stretch it
		case h.Ref.End == 0 || v <= h.Ref.End:
			s.add(mark{Time: v, Kind: markNote, Lane: h.Lane, To: -1, Label: "validity ends"})
		case s.Region != nil && s.Region.Double:
			s.add(mark{Time: v, Kind: markNote, Lane: h.Lane, To: -1, Label: "validity would end"})
		}
	}
}

// faultMarks adds the faults that hit a lane while it mattered.
func (s *story) faultMarks(faults []history.Fault, env results.Env) {
	from, to := s.span()
	for _, m := range s.Marks {
		from = min(from, m.Time)
	}
	for _, f := range faults {
		begin := f.Start
		if f.Bit != 0 {
			begin = f.Bit
		}
		if begin > to || f.End != 0 && f.End < from || f.Receipt.Status == history.NotInstalled || f.Name == "noop" {
			continue
		}
		for _, target := range f.Targets {
			for _, l := range s.hit(target, env) {
				s.fault(f, l, target, begin)
			}
		}
	}
}

// fault adds one fault to one lane.
func (s *story) fault(f history.Fault, l int, target string, begin int64) {
	who := ""
	if s.Lanes[l].Kind == laneService {
		who = target + " "
	}
	began, ended := faultWords(f.Name)
	end := f.End
	if f.Name == "pause" && f.Undo != 0 {
		end = f.Undo // it runs from the signal on; that it was seen to run came later
	}
	s.Bands = append(s.Bands, band{Lane: l, From: begin, To: end})
	s.add(mark{Time: begin, Kind: markFault, Lane: l, To: -1, Label: who + began})
	if end != 0 && ended != "" {
		s.add(mark{Time: end, Kind: markFault, Lane: l, To: -1, Label: who + ended})
	}
}

// hit finds the lanes of a fault's target: every user of a client, the resource, or the service.
func (s *story) hit(target string, env results.Env) []int {
	var out []int
	for i, l := range s.Lanes {
		if l.Kind == laneClient && l.Name == target {
			out = append(out, i)
		}
	}
	switch {
	case out != nil || strings.HasPrefix(target, "client-"):
		return out
	case env.Resource != "" && strings.HasPrefix(target, env.Resource):
		out = append(out, s.lane(laneResource))
	default:
		out = append(out, s.lane(laneService))
	}
	return slices.DeleteFunc(out, func(i int) bool { return i < 0 })
}

// faultWords says how a fault's begin and its end are called on a lane.
func faultWords(name string) (began, ended string) {
	switch name {
	case "pause":
		return "paused (SIGSTOP)", "runs again"
	case "kill":
		return "killed (SIGKILL)", "up again"
	case "restart":
		return "killed (SIGKILL)", "serves again"
	}
	return name + " begins", name + " healed"
}
