package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// TestGlossary folds only if the width was set, and keeps names and meanings apart.
func TestGlossary(t *testing.T) {
	entries := [][2]string{{"a", "one two three four five"}, {"long-name", "six\n seven"}}
	for name, c := range map[string]struct {
		opts []Option
		want string
	}{
		"for a program": {nil, "a          one two three four five\nlong-name  six seven\n"},
		"wide enough":   {[]Option{Width(30)}, "a          one two three four\n           five\nlong-name  six seven\n"},
		"narrow":        {[]Option{Width(20)}, "a\n    one two three\n    four five\nlong-name\n    six seven\n"},
	} {
		var b bytes.Buffer
		if err := Glossary(&b, entries, c.opts...); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, b.String(), c.want)
		}
	}
}

// TestFoldKeepsColumns breaks long lines between words, and leaves what fits and what cannot be broken.
func TestFoldKeepsColumns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"short line\n", "short line\n"},
		{"  a word and more words than there is room for\n", "  a word and more words\n    than there is room\n    for\n"},
		{"  --flag  what the flag means, in a long text\n", "  --flag  what the flag\n          means, in a\n          long text\n"},
		{"lock           1 lock         64 locks  none\n", "lock           1 lock\n  64 locks  none\n"},
		{"again  lockquake-run-with-a-very-long-name x\n", "again\n       lockquake-run-with-a-very-long-name\n       x\n"},
		{"one-word-that-cannot-be-broken-anywhere\n", "one-word-that-cannot-be-broken-anywhere\n"},
		{"\n", "\n"},
	} {
		var b strings.Builder
		if err := Fold(&b, c.text, Width(24)); err != nil || b.String() != c.want {
			t.Errorf("%q is folded to\n%s, want\n%s", c.text, b.String(), c.want)
		}
	}
}
