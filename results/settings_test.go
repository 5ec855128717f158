package results

import "testing"

// TestBlames: only counts from the run itself are blamed.
func TestBlames(t *testing.T) {
	evicted := func(before, after string) Setting {
		return Setting{Server: "redis-1", Name: "evicted_keys", Before: before, After: after, Blames: "keys were evicted"}
	}
	for _, c := range []struct {
		name string
		s    Setting
		want string
	}{
		{"during the run", evicted("4", "18810"), "redis-1: during the run 18,806 keys were evicted"},
		{"before the run", evicted("4", "4"), ""},
		{"a server that was started anew", evicted("18810", "3"), ""},
		{"a server that is gone", evicted("4", ""), ""},
		{"a setting", Setting{Server: "redis-1", Name: "maxmemory", Before: "1", After: "2"}, ""},
	} {
		got := Env{Settings: []Setting{c.s}}.blames()
		if c.want == "" && got != nil || c.want != "" && (len(got) != 1 || got[0] != c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if a, b := evicted("4", "4").String(), evicted("4", "5").String(); a != "4" || b != "4, and after the load 5" {
		t.Errorf("%q, %q", a, b)
	}
}
