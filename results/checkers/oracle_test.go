package checkers

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/oracle"
	"github.com/lockquake/lockquake/results"
)

// The second judge reports for every golden history what is wanted there.
func TestOracleAgreesOnGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(b), "\n----\n") {
			s, err := parseScript(part)
			if err != nil {
				t.Fatal(err)
			}
			counts := oracle.Judge(oracleRun(s.run), s.whole())
			for name, want := range s.want {
				if got, ok := counts[name]; ok {
					compared++
					if strconv.FormatInt(got, 10) != want {
						t.Errorf("%s: %s is %d, want %s\n%s", p, name, got, want, part)
					}
				}
			}
		}
	}
	if compared < 150 {
		t.Errorf("only %d counts were compared", compared)
	}
}

func oracleRun(r results.Run) oracle.Run {
	out := oracle.Run{
		Token: r.Token, Resource: r.Resource, Increments: r.Increments, Writes: r.Writes, Stock: r.Terms["stock"],
		Permits: r.Permits,
		Errors:  map[int]int64{}, Dead: map[int]bool{},
	}
	for _, p := range r.Processes {
		if c, ok := history.ClientOf(p.Process); ok {
			out.Errors[c] = p.ErrorNS
		}
	}
	for _, name := range r.Dead {
		if c, ok := history.ClientOf(name); ok {
			out.Dead[c] = true
		}
	}
	return out
}
