package chaos

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// shards is a service that shards its locks: it maps each node to the locks it leads.
type shards map[string][]string

func (shards) Facts() map[string]string { return nil }

func (shards) Ask(context.Context, string, string) (string, error) { return "", nil }

func (s shards) Leads(_ context.Context, node string, locks []string) ([]string, error) {
	if s[node] == nil {
		return nil, errors.New("no answer")
	}
	return slices.DeleteFunc(slices.Clone(locks), func(l string) bool { return !slices.Contains(s[node], l) }), nil
}

type around struct{ Observer }

func (a around) Unwrap() Observer { return a.Observer }

func TestAShardIsTheLocksOfTheTargetsAlone(t *testing.T) {
	t.Parallel()
	service := around{shards{"a": {"lock-0", "lock-3"}, "b": {"lock-1"}, "c": {}}}
	locks := []string{"lock-0", "lock-1", "lock-2"}
	for _, c := range []struct {
		nodes  []string
		others []string // locks that are not in it
	}{
		{[]string{"a"}, []string{"lock-1", "lock-2"}},
		{[]string{"a", "b"}, []string{"lock-2"}},
		{[]string{"c"}, locks},
	} {
		s := AskShard(t.Context(), service, c.nodes, locks)
		for _, l := range locks {
			if s.Unknown != "" || s.Has(l) == slices.Contains(c.others, l) {
				t.Errorf("%v have %v, and %s is among them: %t", c.nodes, s, l, s.Has(l))
			}
		}
	}
	if s := AskShard(t.Context(), service, []string{"d"}, locks); s.Unknown == "" || !s.Has("lock-2") {
		t.Errorf("the locks of a node that does not answer are %v", s)
	}
	if s := AskShard(t.Context(), around{whole{}}, []string{"a"}, locks); s != nil || !s.Has("lock-2") {
		t.Errorf("a service that does not spread its locks has the shard %v", s)
	}
}

// whole is a service that does not shard its locks.
type whole struct{}

func (whole) Facts() map[string]string { return nil }

func (whole) Ask(context.Context, string, string) (string, error) { return "", nil }
