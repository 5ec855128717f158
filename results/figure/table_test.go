package figure

import "testing"

func TestList(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := List(parts); got != want {
			t.Errorf("%q is written %q, not %q", parts, got, want)
		}
	}
}

// TestTable formats one table in each way. The heading of a group does not widen its first column.
func TestTable(t *testing.T) {
	t.Parallel()
	table := Table{{"", "what was granted", ""}, {"lock", "grants", "what"}, {"v3lock-blind", "1", "as etcdctl"}, {"mutex", "36,312"}}
	for what, c := range map[string]struct{ got, want string }{
		"text":     {table.Text(), "              what was granted\nlock          grants  what\nv3lock-blind  1       as etcdctl\nmutex         36,312\n"},
		"right":    {table[1:].TextRight(), "          lock  grants        what\n  v3lock-blind       1  as etcdctl\n         mutex  36,312\n"},
		"Markdown": {table[1:3].Markdown(), "| lock | grants | what |\n|---|---|---|\n| v3lock-blind | 1 | as etcdctl |\n"},
		"a cell":   {Cell("a|b\n`c` *<d>"), `a\|b 'c' \*&lt;d>`},
	} {
		if c.got != c.want {
			t.Errorf("%s is\n%s\nnot\n%s", what, c.got, c.want)
		}
	}
}
