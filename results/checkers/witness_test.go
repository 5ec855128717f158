package checkers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// TestDoubleGrantHasAWitness hides a double grant behind more overlaps of overdue holds than are kept for witnesses.
func TestDoubleGrantHasAWitness(t *testing.T) {
	var b strings.Builder
	n := maxKept + 50
	for i := range n { // user 0 of B outlives its validity, and many users of A come and go meanwhile
		if i == 0 {
			b.WriteString("1 B acquire invoke\n2 B acquire ok valid=3\n")
		}
		fmt.Fprintf(&b, "%d A acquire invoke\n%d A acquire ok valid=%d\n%d A release invoke\n", 10*i+10, 10*i+11, 10*i+100, 10*i+15)
	}
	end := 10*n + 10
	fmt.Fprintf(&b, "%d C acquire invoke\n%d C acquire ok valid=%d\n%d D acquire invoke\n%d D acquire ok valid=%d\n%d D release invoke\n%d C release invoke\n",
		end, end+1, end+100, end+2, end+3, end+100, end+5, end+6)
	s, err := parseScript(b.String())
	if err != nil {
		t.Fatal(err)
	}
	f := s.judge()[0]
	if *f.Counts["double_grants"] != 1 || !slices.ContainsFunc(f.Witnesses, func(w results.Witness) bool { return w.Kind == "double_grant" }) {
		t.Errorf("%d double grants, %d witnesses, none of them of it", *f.Counts["double_grants"], len(f.Witnesses))
	}
}
