package script

import "slices"

// Size returns how long a script is.
func (s Space) Size(x Script) Size {
	l := s.timeline(x)
	out := Size{Steps: len(l.schedule) + len(l.moments), Faults: len(x.Faults), Users: x.Crowd.Clients*max(x.Crowd.Users, 1) + len(x.users()), Takes: x.For}
	for _, v := range x.Visits {
		if v.Arm != nil {
			out.Faults++
		}
	}
	return out
}

// Less reports whether a is shorter than b.
func (a Size) Less(b Size) bool {
	for _, c := range [][2]int{{a.Faults, b.Faults}, {a.Steps, b.Steps}, {a.Users, b.Users}, {a.Times, b.Times}} {
		if c[0] != c[1] {
			return c[0] < c[1]
		}
	}
	return a.Takes < b.Takes
}

// Reductions lists smaller scripts, the most daring first.
func (s Space) Reductions(x Script) (out []Script) {
	for i := range x.Faults {
		y := x.Clone()
		y.Faults = slices.Delete(y.Faults, i, i+1)
		out = append(out, s.normal(y))
	}
	for i := range x.Visits {
		y := x.Clone()
		y.Visits = slices.Delete(y.Visits, i, i+1)
		out = append(out, s.normal(y))
	}
	return out
}
