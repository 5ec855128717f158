package owner

import (
	"testing"
)

func TestOwnerSurvivesLabelsAndTag(t *testing.T) {
	o := Self("abc", true)
	if got := Of(o.Labels()); got != o {
		t.Errorf("labels: %+v, want %+v", got, o)
	}
	if got, ok := Parse(o.Tag()); !ok || got != o {
		t.Errorf("tag: %+v, want %+v", got, o)
	}
	for _, s := range []string{"", "run=x", "pid=3", "hello, world"} {
		if _, ok := Parse(s); ok {
			t.Errorf("%q was read as a tag", s)
		}
	}
}

func TestLivenessOfSupervisors(t *testing.T) {
	if Self("x", false).Start == 0 {
		t.Skip("needs /proc")
	}
	for what, c := range map[string]struct {
		change func(*Mark)
		want   Liveness
		swept  bool // without All
		all    bool
	}{
		"running":               {func(*Mark) {}, Alive, false, false},
		"running and kept":      {func(o *Mark) { o.Keep = true }, Alive, false, false},
		"pid reused":            {func(o *Mark) { o.Start++ }, Dead, true, true},
		"no such pid":           {func(o *Mark) { o.PID = 1 << 30 }, Dead, true, true},
		"dead and kept":         {func(o *Mark) { o.Start++; o.Keep = true }, Dead, false, true},
		"before the last boot":  {func(o *Mark) { o.Boot = "other" }, Dead, true, true},
		"on another machine":    {func(o *Mark) { o.Boot, o.Host = "other", "elsewhere" }, Unknown, false, true},
		"in another namespace":  {func(o *Mark) { o.PIDNS = "pid:[1]" }, Unknown, false, true},
		"labels of a later day": {func(o *Mark) { *o = Mark{Run: "x"} }, Unknown, false, true},
	} {
		o := Self("x", false)
		c.change(&o)
		if got := o.Liveness(); got != c.want {
			t.Errorf("%s: liveness %d, want %d", what, got, c.want)
		}
		if o.Leftover(false) != c.swept || o.Leftover(true) != c.all {
			t.Errorf("%s: swept %t, with All %t", what, o.Leftover(false), o.Leftover(true))
		}
	}
}
