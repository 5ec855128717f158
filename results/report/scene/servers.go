package scene

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Observations are the servers' answers to questions of the run.
type Observations []history.Observation

// Asked lists the servers that were asked after a grant.
func (os Observations) Asked() []string {
	var out []string
	for _, o := range os {
		if o.By == history.ByGrant && !slices.Contains(out, o.Node) {
			out = append(out, o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// Keepers lists the servers that had a grant right after it was given, without the replicas that copied it.
func (os Observations) Keepers(h results.HoldRef) []string {
	var out []string
	for _, o := range os {
		if o.By != history.ByGrant || o.User == nil || *o.User != h.User || o.Grant != h.Grant || o.Answered < h.Start {
			continue
		}
		if os.ledAt(o.Step, o.Node) && !slices.Contains(out, o.Node) && os.first(o) {
			out = append(out, o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// first reports whether a server was asked because of this very grant: a later grant asks every server anew.
func (os Observations) first(o history.Observation) bool {
	return !slices.ContainsFunc(os, func(p history.Observation) bool {
		return p.By == history.ByGrant && p.User != nil && *p.User == *o.User && p.Grant == o.Grant && p.Step < o.Step
	})
}

// ledAt reports whether a server had a role that takes writes when a step asked it. Servers that did not report a
// role count as such.
func (os Observations) ledAt(step int, node string) bool {
	for _, o := range os {
		if o.By == history.ByGrant && o.Step == step && o.Node == node && o.Fact == "role" && o.Answer != "" {
			return Leads(o.Answer)
		}
	}
	return true
}

// Leads reports whether a role takes writes.
func Leads(role string) bool { return slices.Contains([]string{"leader", "primary", "master"}, role) }

// byNumber sorts redis-2 before redis-10.
func byNumber(a, b string) int {
	cut := func(s string) (string, int) {
		i := strings.LastIndexByte(s, '-')
		n, err := strconv.Atoi(s[i+1:])
		if err != nil {
			return s, 0
		}
		return s[:i+1], n
	}
	an, ai := cut(a)
	bn, bi := cut(b)
	return cmp.Or(cmp.Compare(an, bn), cmp.Compare(ai, bi))
}
