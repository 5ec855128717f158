package checkers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestDoubleGrantHasAWitness hides a double grant behind more overlaps of overdue holds than are kept for witnesses.
// Some holds are known to be overdue when they overlap, others only later.
func TestDoubleGrantHasAWitness(t *testing.T) {
	const n = maxKept + 50
	end := 10*n + 10
	for began, learned := range map[string]string{"valid=3": "", "valid=endless": fmt.Sprintf("%d B ended info valid=3\n", end)} {
		var b strings.Builder
		fmt.Fprintf(&b, "1 B acquire invoke\n2 B acquire ok %s\n", began) // it outlives its validity, and many users of A come and go meanwhile
		for i := range n {
			fmt.Fprintf(&b, "%d A acquire invoke\n%d A acquire ok valid=%d\n%d A release invoke\n", 10*i+10, 10*i+11, 10*i+100, 10*i+15)
		}
		fmt.Fprintf(&b, "%s%d B release invoke\n", learned, end)
		fmt.Fprintf(&b, "%d C acquire invoke\n%d C acquire ok valid=%d\n%d D acquire invoke\n%d D acquire ok valid=%d\n%d D release invoke\n%d C release invoke\n",
			end, end+1, end+100, end+2, end+3, end+100, end+5, end+6)
		s, err := parseScript(b.String())
		if err != nil {
			t.Fatal(err)
		}
		f := s.judge()[0]
		if *f.Counts["double_grants"] != 1 || *f.Counts["overlapping_holds"] != n || !slices.ContainsFunc(f.Witnesses, func(w results.Witness) bool { return w.Kind == "double_grant" }) {
			t.Errorf("%s: %d double grants, %d overlaps, %d witnesses", began, *f.Counts["double_grants"], *f.Counts["overlapping_holds"], len(f.Witnesses))
		}
	}
}

// TestBothCountsHaveWitnesses: with too many, each count has at least half of the space, and what the other leaves.
func TestBothCountsHaveWitnesses(t *testing.T) {
	const most = results.MaxWitnesses
	for _, c := range [][4]int{{2 * most, 0, most, 0}, {0, 2 * most, 0, most}, {2 * most, 1, most - 1, 1}, {2 * most, 2 * most, most / 2, most - most/2}, {1, 2 * most, 1, most - 1}, {1, 1, 1, 1}} {
		var b strings.Builder
		for i := range c[0] + c[1] {
			valid := 10*i + 100
			if i >= c[0] {
				valid = 10*i + 13
			}
			fmt.Fprintf(&b, "%d A acquire invoke\n%d A acquire ok valid=%d\n%d B acquire invoke\n%d B acquire ok valid=%d\n%d A release invoke\n%d B release invoke\n",
				10*i+10, 10*i+11, valid, 10*i+11, 10*i+14, 10*i+100, 10*i+15, 10*i+16)
		}
		s, err := parseScript(b.String())
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, w := range s.judge()[0].Witnesses {
			n[w.Kind]++
		}
		if n["double_grant"] != c[2] || n["overlapping_hold"] != c[3] {
			t.Errorf("of %d double grants and %d overlaps: %v; want %d and %d", c[0], c[1], n, c[2], c[3])
		}
	}
}

// TestWitnessTextOfTwoHolds: when both were entitled, or whose validity had run out.
func TestWitnessTextOfTwoHolds(t *testing.T) {
	const held = "client-1/0 held lock-0 from 10.000 ms to 30.000 ms, client-2/0 from 20.000 ms to 40.000 ms; "
	for valid, want := range map[string]string{
		"100":     "both were entitled at 20.000 ms",
		"15":      "the validity of client-1/0 had ended at 15.000 ms",
		"unknown": "the validity of client-1/0 is unknown",
	} {
		s, err := parseScript("1 A acquire invoke\n2 B acquire invoke\n10 A acquire ok valid=" + valid + "\n20 B acquire ok valid=100\n30 A release invoke\n40 B release invoke\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.judge()[0].Witnesses; len(got) != 1 || got[0].Text != held+want {
			t.Errorf("valid until %s: %+v, want %s", valid, got, want)
		}
	}
}

// TestWitnessNamesTheEarlierHoldFirst, whichever ends first; of two with one start the first user's.
func TestWitnessNamesTheEarlierHoldFirst(t *testing.T) {
	for _, c := range [][2]string{{"10 A 11 B", "A B"}, {"10 B 11 A", "B A"}, {"10 A 10 B", "A B"}, {"10 B 10 A", "A B"}} {
		for _, ends := range []string{"A B", "B A"} {
			w, first := strings.Fields(c[0]), strings.Fields(ends)
			s, err := parseScript(fmt.Sprintf("1 A acquire invoke\n1 B acquire invoke\n%s %s acquire ok valid=100\n%s %s acquire ok valid=100\n20 %s release invoke\n21 %s release invoke\n",
				w[0], w[1], w[2], w[3], first[0], first[1]))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range s.judge()[0].Witnesses[0].Holds {
				got = append(got, string(rune('A'+h.User.Client())))
			}
			if strings.Join(got, " ") != c[1] {
				t.Errorf("%s, and first ends %s: the witness is of %v", c[0], ends, got)
			}
		}
	}
}

// TestTargetOfAHolderFault: one grant of one user.
func TestTargetOfAHolderFault(t *testing.T) {
	a, b := history.MakeUser(0, 0), history.MakeUser(1, 0)
	for _, c := range []struct {
		fault history.Fault
		want  bool
	}{
		{history.Fault{User: &a, Grant: 7}, true},
		{history.Fault{User: &a, Grant: 8}, false},
		{history.Fault{User: &b, Grant: 7}, false},
		{history.Fault{Grant: 7}, false},
	} {
		if got := aimedAt(results.Run{Faults: []history.Fault{c.fault}}, &hold{user: a, grant: 7}); got != c.want {
			t.Errorf("a fault on %v and grant %d: %t", c.fault.User, c.fault.Grant, got)
		}
	}
}

// TestWitnessText: the answer, the actual state, and when.
func TestWitnessText(t *testing.T) {
	for _, c := range []struct{ name, checker, text, want string }{
		{"a renewal that changed nothing", "false_results", `
0 A acquire invoke
10 A acquire ok valid=1000 issued=1
500 A renew invoke
501 A renew ok valid=1500
saw 3 answer service holder:lock-0 a at=502 whose=A ends-in=498
`, "was answered ok at 501.000 ms; asked at 502.000 ms, the service said that client-1/0 has it: the grant was due to end at 1000.000 ms, but the answer was 1500.000 ms"},
		{"a renewal that was refused, and need not have been", "false_results", `
0 A acquire invoke
10 A acquire ok valid=1000 issued=1
500 A renew invoke
501 A renew fail not-held
saw 3 answer service holder:lock-0 a at=502 whose=A
`, "was answered not-held at 501.000 ms"},
		{"a grant is lost that several servers had: the first of them that was seen to have it", "lost_writes", `
0 A acquire invoke
10 A acquire ok valid=1000 issued=1
saw 1 grant n1 holder:lock-0 a at=11 whose=A
saw 1 grant n2 holder:lock-0 a at=11 whose=A
saw 1 grant n3 holder:lock-0 a at=13 whose=A
saw 3 observe n1 holder:lock-0 none at=90
saw 3 observe n2 holder:lock-0 none at=90
saw 3 observe n3 holder:lock-0 none at=90
`, "n1 had its key at 11.000 ms"},
		{"a grant is lost, and what each server has instead", "lost_writes", `
0 A acquire invoke
10 A acquire ok valid=1000 issued=1
saw 1 grant n1 holder:lock-0 a at=11 whose=A
20 B acquire invoke
30 B acquire ok valid=1020 issued=21
saw 3 observe n1 holder:lock-0 none at=90
saw 3 observe n2 holder:lock-0 b at=90 whose=B
saw 3 observe n3 holder:lock-0 x at=90
`, "at 90.000 ms no server has it: n1 has no key, n2 has the key of client-2/0, n3 has another key"},
	} {
		if ws := finding(t, c.checker, c.text).Witnesses; len(ws) != 1 || !strings.Contains(ws[0].Text, c.want) {
			t.Errorf("%s: %+v, want %q", c.name, ws, c.want)
		}
	}
}

// TestTheWorstWitnessComesFirst: B is hours late, A was seconds late.
func TestTheWorstWitnessComesFirst(t *testing.T) {
	for checker, text := range map[string]string{
		"deaf_waits": `
run ttl=2000
0 A acquire invoke valid=1000
5000 A acquire fail timeout
6000 B acquire invoke valid=7000
12000000 B acquire fail timeout
`,
		"late_news": `
run tells recovery=1000
0 A acquire invoke
10 A acquire ok valid=100
140 C acquire invoke
150 C acquire ok valid=200
160 C release invoke
161 C release ok
5000 A lost info
6000 B acquire invoke
6010 B acquire ok valid=6100
6140 C acquire invoke
6150 C acquire ok valid=6200
6160 C release invoke
6161 C release ok
12000000 B lost info
`,
	} {
		var of []string
		for _, w := range finding(t, checker, text).Witnesses {
			of = append(of, history.ClientName(w.Events[0].User.Client()))
		}
		if strings.Join(of, " ") != "client-2 client-1" {
			t.Errorf("%s: the witnesses are of %q", checker, of)
		}
	}
}

// TestForeignReleaseShowsAllHolders: the victim, the third user, and the one that released it.
func TestForeignReleaseShowsAllHolders(t *testing.T) {
	ws := finding(t, "foreign_releases", `
0 A acquire invoke
10 A acquire ok valid=100 issued=1
120 B acquire invoke
130 B acquire ok valid=1030 issued=121
140 A release invoke
150 A release ok
160 C acquire invoke
170 C acquire ok valid=1170 issued=161
`).Witnesses
	if len(ws) != 1 {
		t.Fatalf("%d witnesses", len(ws))
	}
	var of []string
	for _, h := range ws[0].Holds {
		of = append(of, history.ClientName(h.User.Client()))
	}
	if strings.Join(of, " ") != "client-2 client-3 client-1" {
		t.Errorf("the witness shows the holds of %q", of)
	}
}

// TestStaleWriteShowsTheFirstLaterHolder: B touched the resource before C. They asked, or were granted it, at
// the same moment; or only their tokens show that they came later.
func TestStaleWriteShowsTheFirstLaterHolder(t *testing.T) {
	for name, text := range map[string]string{
		"asked at one moment": `
10 A acquire ok valid=100 issued=1
130 B acquire ok valid=1030 issued=120
135 C acquire ok valid=1030 issued=120
`,
		"were granted the lock at one moment": `
10 A acquire ok valid=100 issued=9
12 A effect-read ok
100 A release invoke
130 B acquire ok valid=1030 issued=2
130 C acquire ok valid=1030 issued=3
`,
		"stood in a queue": `
10 A acquire ok valid=1000 issued=1 token=5
130 B acquire ok valid=1030 issued=2 token=6
131 C acquire ok valid=1030 issued=3 token=7
`,
	} {
		ws := finding(t, "stale_writes", "run resource=register token=service\n1 A acquire invoke\n2 B acquire invoke\n3 C acquire invoke"+text+"140 B effect-read ok\n150 C effect-read ok\n160 A effect-write ok\n").Witnesses
		if len(ws) != 1 || history.ClientName(ws[0].Holds[1].User.Client()) != "client-2" {
			t.Errorf("they %s: %+v", name, ws)
		}
	}
}

// TestFenceSavesTakeHalfOfTheRoom, so that a report also shows something else.
func TestFenceSavesTakeHalfOfTheRoom(t *testing.T) {
	text := "run resource=register\n0 A acquire invoke\n10 A acquire ok valid=20 issued=1\n30 B acquire invoke\n40 B acquire ok valid=9000 issued=31\n41 B effect-read ok\n"
	for i := range 2 * results.MaxWitnesses {
		text += fmt.Sprintf("%d A effect-write fail fenced\n", 50+i)
	}
	f := finding(t, "stale_writes", text)
	if *f.Counts["fence_saves"] != 2*results.MaxWitnesses || len(f.Witnesses) != results.MaxWitnesses/2 {
		t.Errorf("%d fence saves, %d witnesses", *f.Counts["fence_saves"], len(f.Witnesses))
	}
}
