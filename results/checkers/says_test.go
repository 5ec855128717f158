package checkers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// finding judges a history written by hand and returns the finding of one checker.
func finding(t *testing.T, checker, text string) results.Finding {
	t.Helper()
	s, err := parseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	fs := s.judge()
	return fs[slices.IndexFunc(fs, func(f results.Finding) bool { return f.Checker == checker })]
}

// TestCheckerTexts checks the texts of all witnesses, in their order, and the warnings.
func TestCheckerTexts(t *testing.T) {
	for _, c := range []struct {
		name, checker, text string
		witnesses           []string
		warnings            []string
	}{
		{"a wait of several looks is told from its begin, with the faults that stood in it", "stuck_locks", `
run recovery=1000
fault kill on=n1 at=10 until=30
fault kill on=n2 at=15 until=31
fault kill on=n3 at=900
fault kill on=n4 at=1499 until=1600
fault kill on=n5 at=1500 until=1600
0 A acquire invoke
10 A acquire ok valid=9000
20 A release invoke
30 B acquire invoke
400 C acquire invoke
1500 B acquire ok valid=9000
`, []string{"lock-0: users asked for 1470.000 ms from 30.000 ms to 1500.000 ms; it had no holder and was not granted; the bound is 1000.000 ms; kill on n2 stood then; kill on n3 stood then; kill on n4 stood then"}, nil},
		{"the longest wait comes first, be it hours", "stuck_locks", `
run recovery=1000
0 A acquire invoke
1500 A acquire ok valid=20000000
1600 A release invoke
2000 A acquire invoke
10802000 A acquire ok valid=20000000
`, []string{
			"lock-0: users asked for 10800000.000 ms from 2000.000 ms to 10802000.000 ms; it had no holder and was not granted; the bound is 1000.000 ms",
			"lock-0: users asked for 1500.000 ms from 0.000 ms to 1500.000 ms; it had no holder and was not granted; the bound is 1000.000 ms",
		}, nil},
		{"a request sent at the very time of the other's grant is no later one: what tells is that the hold was over", "token_regressions", `
run token=service
0 A acquire invoke
10 A acquire ok valid=1000 issued=1 token=7
10 B acquire invoke
20 A release invoke
40 B acquire ok valid=1000 issued=10 token=5
`, []string{"client-2/0 got token 5 at 40.000 ms and was entitled to it, although the hold of client-1/0, which had token 7, had ended at 20.000 ms"}, nil},
		{"of the earlier ones, exclusive and shared, the witness names the one with the highest token", "token_regressions", `
run token=service
0 A acquire invoke
10 A acquire ok valid=1000 issued=1 token=7
11 A release invoke
20 B acquire invoke shared
30 B acquire ok valid=1000 issued=21 token=9 shared
31 B release invoke
40 C acquire invoke
50 C acquire ok valid=1000 issued=41 token=5
`, []string{"client-3/0 got token 5 with a request sent at 41.000 ms, after client-2/0 had got token 9 at 30.000 ms"}, nil},
		{"... and where the exclusive one has it", "token_regressions", `
run token=service
0 A acquire invoke shared
10 A acquire ok valid=1000 issued=1 token=7 shared
11 A release invoke
20 B acquire invoke
30 B acquire ok valid=1000 issued=21 token=9
31 B release invoke
40 C acquire invoke
50 C acquire ok valid=1000 issued=41 token=5
`, []string{"client-3/0 got token 5 with a request sent at 41.000 ms, after client-2/0 had got token 9 at 30.000 ms"}, nil},
		{
			"a request that waited while more grants came than are kept in memory is not judged", "token_regressions",
			"run token=service\n0 B acquire invoke\n" + grants(maxRungs+1) + "900000 B acquire ok valid=1 issued=0 token=1\n",
			nil,
			[]string{"1 request waited while more grants came than are kept in memory"},
		},
		{
			"... unless it came into hand when others were over: their tokens are known", "token_regressions",
			"run token=service\n0 B acquire invoke\n" + grants(maxRungs+1) + "900000 B acquire ok valid=9000000 issued=0 token=900000\n",
			nil, nil,
		},
		{"a grant without a token is told, and no more than that", "token_regressions", `
run token=service
0 A acquire invoke
10 A acquire ok valid=1000 issued=1
`, nil, []string{"1 grant came without a token"}},
		{"a wedge is told by the longest time of a user: the first one", "wedges", wedged(1600, 1400), []string{
			"client-1/0 waited for lock-0 without a grant for 1600.000 ms, from 3100.000 ms to 4700.000 ms: it had no holder, all faults were over, and others were granted locks; the bound is 1000.000 ms",
		}, nil},
		{"... the second one", "wedges", wedged(1400, 1600), []string{
			"client-1/0 waited for lock-0 without a grant for 1600.000 ms, from 6100.000 ms to 7700.000 ms: it had no holder, all faults were over, and others were granted locks; the bound is 1000.000 ms",
		}, nil},
		{"... the first of two that are as long", "wedges", wedged(1500, 1500), []string{
			"client-1/0 waited for lock-0 without a grant for 1500.000 ms, from 3100.000 ms to 4600.000 ms: it had no holder, all faults were over, and others were granted locks; the bound is 1000.000 ms",
		}, nil},
		{"the longest wedge comes first, be it hours", "wedges", `
run recovery=1000
0 B acquire invoke
1 B acquire ok valid=9000 issued=0
2 B release invoke
3 B release ok
500 A acquire invoke
1000 C acquire invoke
2000 A acquire fail timeout
10801000 C acquire fail timeout
`, []string{
			"client-3/0 waited for lock-0 without a grant for 10800000.000 ms, from 1000.000 ms to 10801000.000 ms: it had no holder, all faults were over, and others were granted locks; the bound is 1000.000 ms",
			"client-1/0 waited for lock-0 without a grant for 1500.000 ms, from 500.000 ms to 2000.000 ms: it had no holder, all faults were over, and others were granted locks; the bound is 1000.000 ms",
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := finding(t, c.checker, c.text)
			var texts []string
			for _, w := range f.Witnesses {
				texts = append(texts, w.Text)
			}
			if !slices.Equal(texts, c.witnesses) || !slices.Equal(f.Warnings, c.warnings) {
				t.Errorf("witnesses:\n%s\nwant:\n%s\nwarnings: %q, want %q", strings.Join(texts, "\n"), strings.Join(c.witnesses, "\n"), f.Warnings, c.warnings)
			}
			if len(c.warnings) > 0 && f.Verdict != results.Unknown {
				t.Errorf("it warns, and is %s", f.Verdict)
			}
		})
	}
}

// wedged has A ask in vain for one time, in ms, then get the lock, and ask in vain for another time.
func wedged(first, second int) string {
	return fmt.Sprintf(`
run recovery=1000
fault partition on=A at=100 until=2000
2100 B acquire invoke
2110 B acquire ok valid=9000 issued=2100
2120 B release invoke
2130 B release ok
3100 A acquire invoke
%d A acquire fail timeout
5000 A acquire invoke
5010 A acquire ok valid=9000 issued=5000
5020 A release invoke
5030 A release ok
6100 A acquire invoke
%d A acquire fail timeout
`, 3100+first, 6100+second)
}

// grants has A granted the lock n times in a row, with growing tokens.
func grants(n int) string {
	var b strings.Builder
	for i := range n {
		t := 10*i + 10
		fmt.Fprintf(&b, "%d A acquire invoke\n%d A acquire ok valid=900000 issued=%d token=%d\n%d A release invoke\n", t, t+1, t, i+10, t+2)
	}
	return b.String()
}

// TestFewWitnessesOfStalls: the count is complete, the witnesses are bounded.
func TestFewWitnessesOfStalls(t *testing.T) {
	var b strings.Builder
	b.WriteString("run ttl=100\n")
	for i := range 2 * results.MaxWitnesses {
		fmt.Fprintf(&b, "%d A stall info issued=60\n", 100*i+100)
	}
	if f := finding(t, "stalls", b.String()); len(f.Witnesses) != results.MaxWitnesses || *f.Counts["own_stalls"] != 2*results.MaxWitnesses {
		t.Errorf("%d witnesses of %d stalls", len(f.Witnesses), *f.Counts["own_stalls"])
	}
}

// TestSameExcuseIsNamedEachTime: of several locks that a standstill excuses, the first one is named.
func TestSameExcuseIsNamedEachTime(t *testing.T) {
	for range 20 {
		f := finding(t, "stuck_locks", `
run recovery=100 ttl=100
0 A acquire invoke
5 B acquire invoke lock=1
140 B stall info issued=110
141 B acquire ok lock=1 valid=300 issued=6
150 A stall info issued=120
151 A acquire ok valid=300 issued=1
`)
		want := results.Excused{N: 2, Why: "client-1 did not run for 120.000 ms, from 30.000 ms on, without a fault"}
		if got := f.Excused["stuck_locks"]; got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
}
