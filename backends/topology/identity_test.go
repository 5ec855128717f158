package topology

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestMeetFindsServersThatTakeTurns: one server is listed once however often it answers, and one without an id is not
// listed.
func TestMeetFindsServersThatTakeTurns(t *testing.T) {
	for _, c := range []struct {
		ids  []string // in the order of the connects, repeated
		want string
	}{{[]string{"a"}, "a"}, {[]string{"b", "a"}, "a b"}, {[]string{""}, ""}, {[]string{"a", ""}, "a"}} {
		asked := 0
		m, err := Meet(t.Context(), "10.0.0.7:1", true, func(context.Context) (string, error) { asked++; return c.ids[asked%len(c.ids)], nil })
		if got := strings.Join(m.Servers, " "); err != nil || got != c.want || asked != Meetings {
			t.Errorf("%q: met %q in %d connects, %v", c.ids, got, asked, err)
		}
	}
	down := errors.New("down")
	if _, err := Meet(t.Context(), "10.0.0.7:1", true, func(context.Context) (string, error) { return "", down }); !errors.Is(err, down) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// TestCheckMet rejects endpoints with more servers, or fewer, than the lock's promise requires.
func TestCheckMet(t *testing.T) {
	one, two, both := Met{"x:1", []string{"a"}, true}, Met{"x:2", []string{"b"}, true}, Met{"x:3", []string{"b", "c"}, true}
	again, quorum, silent := Met{"x:4", []string{"a"}, true}, Met{"x:5", []string{"a", "b"}, false}, Met{"x:6", nil, true}
	for _, c := range []struct {
		name  string
		met   []Met
		apart bool
		want  string
	}{
		{"one server", []Met{one}, false, ""},
		{"two servers behind one address", []Met{both}, false, "2 servers behind x:3 (b, c), but the lock needs one"},
		{"two that agree", []Met{quorum, one}, false, ""},
		{"one server at two addresses, of a quorum", []Met{one, again}, false, ""},
		{"one server at two addresses, of Redlock", []Met{one, two, again}, true, "x:1 and x:4 are the same server (a)"},
		{"three servers of Redlock", []Met{one, two, {"x:7", []string{"c"}, true}}, true, ""},
		{"several behind one of Redlock's addresses", []Met{one, both}, true, "2 servers behind x:3"},
		{"servers that tell nothing", []Met{silent, silent}, true, ""},
	} {
		if err := CheckMet(c.met, c.apart); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
