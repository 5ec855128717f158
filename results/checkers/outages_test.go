package checkers

import "testing"

// TestWhyALockCouldNotBeTaken: how many locks were out, for how long, and what became of their holders.
func TestWhyALockCouldNotBeTaken(t *testing.T) {
	for _, c := range []struct{ text, want string }{
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
`, "2 of 2 locks could not be taken for 4.80 to 5.00 s: the releases of their holders did not come through, so the grants stood until their time was over"},
		{`
fault kill on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
110 A dead info
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had died, so the grant stood until its time was over"},
		{`
fault pause on=A at=100 until=1000
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
1100 B acquire ok valid=9000 issued=1090
`, "lock-0 could not be taken for 1.00 s: its holder had it in hand"},
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
`, "1 of 2 locks could not be taken for 1.00 s: they had been released, and the service granted them to nobody"},
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
			}
		}
	}
}
