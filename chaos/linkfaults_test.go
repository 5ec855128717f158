package chaos

import (
	"strings"
	"testing"
	"time"
)

func TestLanes(t *testing.T) {
	a, b := bareNode("a"), bareNode("b")
	var l *LinkFaults
	l.Remove(l.Add("nothing", []Lane{{From: a, To: b}})) // none is kept
	l = &LinkFaults{}
	mine := l.Add("mine", []Lane{{From: a, To: b}})
	port := l.Add("port", []Lane{{From: a, To: b, FromPort: 7}})
	time.Sleep(time.Microsecond)
	since := port.from + 1
	for _, x := range []struct {
		what string
		got  Beside
		want string
	}{
		{"any port", l.Others(mine, Lane{From: a, To: b}, since), ""},
		{"that port", l.Others(mine, Lane{From: a, To: b, FromPort: 7, ToPort: 9}, since), "port"},
		{"the other direction", l.Others(mine, Lane{From: b, To: a}, since), ""},
		{"another's", l.Others(port, Lane{From: a, To: b, FromPort: 7}, since), "mine"},
		{"nothing changed since", l.Changed(mine, Lane{From: a, To: b, FromPort: 7}, since), ""},
		{"it came since", l.Changed(mine, Lane{From: a, To: b, FromPort: 7}, port.from), "port"},
	} {
		if got := strings.Join(x.got, " "); got != x.want {
			t.Errorf("%s: %q, want %q", x.what, got, x.want)
		}
	}
	l.Remove(port)
	if got := l.Others(mine, Lane{From: a, To: b, FromPort: 7}, since); len(got) != 1 {
		t.Errorf("one that went meanwhile: %v", got)
	}
	if got := l.Others(mine, Lane{From: a, To: b, FromPort: 7}, port.to+1); len(got) != 0 {
		t.Errorf("one that had gone: %v", got)
	}
}
