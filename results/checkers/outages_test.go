package checkers

import (
	"fmt"
	"testing"
)

// TestWhyALockCouldNotBeTaken: how many locks were out, for how long, and the fate of their holders. If a proof is
// given, the witness is of that lock and time, and has that event.
func TestWhyALockCouldNotBeTaken(t *testing.T) {
	for _, c := range []struct{ text, want, proof string }{
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
1 C acquire invoke lock=1
11 C acquire ok lock=1 valid=5000 issued=2
20 B acquire invoke
21 D acquire invoke lock=1
90 A release invoke
95 C release invoke lock=1
150 A release info timeout
160 C release fail connection lock=1
5100 B acquire ok valid=9000 issued=5090
4900 D acquire ok lock=1 valid=9000 issued=4890
`, "2 of 2 locks could not be taken for 4.80 to 5.00 s: the releases of their holders did not get through, so the grants stood until they expired", ""},
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
110 A dead info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had died, so the grant stood until it expired", ""},
		{`
fault pause on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand", ""},
		// the fate of a lost client's grant is unknown
		{`
run lost=client-1
fault pause on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s", ""},
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
12 A release invoke
15 A release ok
20 B acquire invoke
1100 B acquire ok valid=9000 issued=1090
30 C acquire invoke lock=1
210 C acquire ok lock=1 valid=9000 issued=200
`, "1 of 2 locks could not be taken for 1.00 s: they had been released, but the service did not grant them", ""},
		// a death without a grant ends all holds; another lock was never out
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
11 C acquire invoke lock=1
12 C acquire ok lock=1 valid=5000 issued=11
20 B acquire invoke
90 D dead info
110 A dead info all
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had died, so the grant stood until it expired", "lock-0 100-1100: 110 dead info"},
		// the death of another hold of the same user
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
11 A acquire invoke lock=1
12 A acquire ok lock=1 valid=5000 issued=11
20 B acquire invoke
110 A dead info hold=2
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand", "lock-0 100-1100: 10 acquire ok"},
		// it began to release, and died
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
95 A release invoke
110 A dead info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had died, so the grant stood until it expired", "lock-0 100-1100: 110 dead info"},
		// it had released before it died
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
110 A dead info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", "lock-0 100-1100: 95 release ok"},
		// it was notified that it had lost the lock
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
110 A lost info
120 C check ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had lost it", "lock-0 100-1100: 110 lost info"},
		// it was notified of the loss while it released
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
105 A release invoke
110 A lost info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: the release of its holder had no answer", "lock-0 100-1100: 105 release invoke"},
		// the release's answer was that it had been lost already: it is free
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
105 A release invoke
110 A release fail not-held
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", "lock-0 100-1100: 110 release fail"},
		// two had it: the later grant decides, whatever others ask for
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
15 C acquire invoke
16 C acquire ok valid=5000 issued=15
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand", "lock-0 100-1100: 16 acquire ok"},
		// it was never held: the first request
		{`
fault kill on=redis-1 at=100 until=1000
20 B acquire invoke
30 C acquire invoke
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s", "lock-0 100-1100: 20 acquire invoke"},
		// of two equally long times, the first
		{`
fault kill on=redis-1 at=100 until=5000
20 B acquire invoke
1100 B acquire ok valid=9000 issued=1090
1100 C acquire invoke
1200 B release invoke
1210 B release ok
2100 C acquire ok valid=9000 issued=2090
`, "lock-0 could not be taken for 1.00 s", "lock-0 100-1100: 20 acquire invoke"},
		// of two locks that are out equally long, the first
		{`
fault kill on=redis-1 at=100 until=1000
20 B acquire invoke lock=1
21 C acquire invoke
1100 B acquire ok lock=1 valid=9000 issued=1090
1100 C acquire ok valid=9000 issued=1090
`, "2 of 2 locks could not be taken for 1.00 s", "lock-0 100-1100: 21 acquire invoke"},
		// exactly half as long counts, less does not; most of them had one cause
		{`
fault kill on=redis-1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
11 C acquire invoke lock=1
12 C acquire ok lock=1 valid=5000 issued=11
13 E acquire invoke lock=3
14 E acquire ok lock=3 valid=5000 issued=13
20 B acquire invoke
21 D acquire invoke lock=1
22 F acquire invoke lock=2
23 G acquire invoke lock=3
400 F acquire ok lock=2 valid=5000 issued=390
200 C release invoke lock=1
210 C release ok lock=1
600 D acquire ok lock=1 valid=9000 issued=590
1100 B acquire ok valid=9000 issued=1090
1100 G acquire ok lock=3 valid=9000 issued=1090
`, "3 of 4 locks could not be taken for 0.50 to 1.00 s; of 2 of them, their holders had them in hand", "lock-0 100-1100: 10 acquire ok"},
		// some users ahead of C died; with B3 behind it they are three
		{`
run fair
fault kill on=B at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
12 B acquire invoke
13 B2 acquire invoke
14 C acquire invoke
15 B3 acquire invoke
90 A release invoke
95 A release ok
1100 C acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: 3 dead users stood in its queue until their sessions ended", ""},
		// all dead users were behind C
		{`
run fair
fault kill on=B at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
14 C acquire invoke
15 B acquire invoke
90 A release invoke
95 A release ok
1100 C acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// the holder died while it released
		{`
run fair
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
14 C acquire invoke
15 A2 acquire invoke
99 A release invoke
1100 C acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: 2 dead users stood in its queue until their sessions ended", ""},
		// the holder of a queue died, too
		{`
run fair
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
11 A2 acquire invoke
20 B acquire invoke
110 A dead info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had died, so the grant stood until it expired, and a dead user stood in its queue until its session ended", ""},
		// a lock without a queue has no dead waiters
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
11 A2 acquire invoke
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// a paused holder released it just before the next grant
		{`
fault pause on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
1005 A release invoke
1010 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand", "lock-0 100-1100: 10 acquire ok"},
		// too few servers
		{`
run servers=n1,n2,n3
fault kill on=n1,n2 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: there was no majority of the servers: n3 alone, of 3 servers", ""},
		{`
run servers=n1,n2,n3
fault kill on=n1 at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// no server led while the lock was free
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: the service had no leader between n1 and n2", ""},
		// no other server was known to lead
		{`
fault pause on=n1 at=100 until=1050 new= old=n1
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: the service had no leader after n1", ""},
		// another server led soon
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=300
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// the old leader was back soon
		{`
fault kill on=n1 at=100 until=300 new=n2 old=n1 led=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// a leader that is cut off may serve its clients
		{`
fault partition on=n1 at=100 until=5000 new=n2 old=n1 led=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// it led other locks
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=1000 locks=lock-7
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// it led this lock
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=1000 locks=lock-0
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: the service had no leader between n1 and n2", ""},
		// which locks it led is unknown
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=1000 locks=?
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// the lock of a service that spreads its locks
		{`
fault pause on=n1 at=100 until=5000 new=n2 old=n1 led=1000 selector=leader(lock-1)
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
90 A release invoke
95 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: it had been released, but the service did not grant it", ""},
		// its holder had it in hand all the time
		{`
fault kill on=n1 at=100 until=5000 new=n2 old=n1 led=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
1005 A release invoke
1010 A release ok
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand", ""},
	} {
		s, err := parseScript(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.judge() {
			if f.Checker != unavailabilityKind.Name {
				continue
			}
			if len(f.Witnesses) != 1 || f.Witnesses[0].Text != c.want {
				t.Errorf("%+v, want %s", f.Witnesses, c.want)
			} else if w, e := f.Witnesses[0], f.Witnesses[0].Events[0]; c.proof != "" {
				if got := fmt.Sprintf("%s %d-%d: %d %v %v", w.Lock, w.From/1e6, w.To/1e6, e.Time/1e6, e.Kind, e.Phase); got != c.proof {
					t.Errorf("%s: the proof is %s, want %s", c.want, got, c.proof)
				}
			}
		}
	}
}
