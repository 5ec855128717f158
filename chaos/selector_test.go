package chaos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
)

type roles map[string]string

func (r roles) Facts() map[string]string { return map[string]string{FactRole: "", FactServes: ""} }

func (r roles) Ask(_ context.Context, node, _ string) (string, error) {
	if r[node] == "" {
		return "", errors.New("connection refused")
	}
	return r[node], nil
}

// sharded gives each node a lock of its own; the first node of a lock leads.
type sharded map[string]string

func (s sharded) Facts() map[string]string {
	return map[string]string{FactRole: "", FactRole + ":LOCK": "", FactServes: ""}
}

func (s sharded) Ask(_ context.Context, node, fact string) (string, error) {
	mine := s[node]
	if mine == "" {
		return "", errors.New("connection refused")
	}
	if name, ok := strings.CutPrefix(fact, FactRole+":"); ok && name != mine {
		return "none", nil
	}
	for other, of := range s {
		if of == mine && other < node {
			return "slave", nil
		}
	}
	return "master", nil
}

func nodes(names ...string) []Node {
	var out []Node
	for _, n := range names {
		out = append(out, bareNode(n))
	}
	return out
}

type bareNode string

func (b bareNode) Name() string { return string(b) }

func TestResolve(t *testing.T) {
	servers, clients := nodes("etcd-1", "etcd-2", "etcd-3", "etcd-4", "etcd-5"), nodes("client-1", "client-2")
	all := append(append(nodes(), servers...), clients...)
	service := roles{"etcd-1": "follower", "etcd-2": "leader", "etcd-3": "follower", "etcd-5": "learner"}
	for _, c := range []struct {
		text    string
		servers []Node
		service Observer
		want    string // names, or the error's text
	}{
		{"etcd-3", servers, service, "etcd-3"},
		{"client-2", servers, service, "client-2"},
		{"all", servers, service, "etcd-1 etcd-2 etcd-3 etcd-4 etcd-5"},
		{"clients", servers, service, "client-1 client-2"},
		{"leader", servers, service, "etcd-2"},
		{"followers", servers, service, "etcd-1 etcd-3 etcd-5"},
		{"leader", servers, roles{"etcd-1": "master", "etcd-2": "master"}, "error: target leader: more than one"},
		{"leader", servers, roles{"etcd-1": "follower"}, "error: target leader: none"},
		{"leader", servers, roles{"etcd-1": "sentinel", "etcd-2": "master", "etcd-3": "slave"}, "etcd-2"},
		{"followers", servers, roles{"etcd-1": "sentinel", "etcd-2": "master", "etcd-3": "slave"}, "etcd-3"},
		{"leader(a)", servers, service, "etcd-2"},
		{"leader(a)", servers, sharded{"etcd-1": "a", "etcd-2": "b", "etcd-4": "a"}, "etcd-1"},
		{"followers(a)", servers, sharded{"etcd-1": "a", "etcd-2": "b", "etcd-4": "a"}, "etcd-4"},
		{"leader(c)", servers, sharded{"etcd-1": "a", "etcd-2": "b"}, "error: target leader(c): none"},
		{"leader", servers, sharded{"etcd-1": "a", "etcd-2": "b"}, "error: target leader: more than one"},
		{"leader", servers, nil, "error: target leader: there is no service"},
		{"minority", servers[:1], service, "error: target minority: none"},
		{"one", nil, service, "error: target one: none"},
		{"holder", servers, service, "error: a holder is found by its grant"},
	} {
		sel, err := ParseSelector(c.text, []string{"etcd-3", "client-2"})
		if err != nil {
			t.Fatal(err)
		}
		view := View{All: all, Servers: c.servers, Clients: clients, Service: c.service, Random: seed.Rand(1, "t")}
		got, err := sel.Resolve(t.Context(), view)
		text := joinNames(got)
		if err != nil {
			text = "error: " + err.Error()
		}
		if !strings.HasPrefix(text, c.want) || err == nil && text != c.want {
			t.Errorf("%s: %s, want %s", c.text, text, c.want)
		}
	}
}

func joinNames(list []Node) string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name())
	}
	return strings.Join(out, " ")
}

func TestResolveDrawsFromTheSeed(t *testing.T) {
	for word, want := range map[string]int{"one": 1, "minority": 2, "majority": 3} {
		sel, err := ParseSelector(word, nil)
		if err != nil {
			t.Fatal(err)
		}
		draws := map[string]bool{}
		for s := range uint64(60) {
			draw := func() string {
				v := View{Servers: nodes("a", "b", "c", "d", "e"), Random: seed.Rand(s, "selector")}
				got, err := sel.Resolve(t.Context(), v)
				if err != nil || len(got) != want {
					t.Fatalf("%s: %v (%v), want %d nodes", word, got, err, want)
				}
				return joinNames(got)
			}
			first := draw()
			if again := draw(); again != first {
				t.Errorf("%s with seed %d: %s, then %s", word, s, first, again)
			}
			draws[first] = true
		}
		if len(draws) < 5 {
			t.Errorf("%s: 60 seeds give only %d targets", word, len(draws))
		}
	}
}

func TestParseSelector(t *testing.T) {
	for _, c := range []struct {
		text, lock string
		holder, ok bool
	}{
		{"holder", "", true, true},
		{"holder(lock-3)", "lock-3", true, true},
		{"redis-1", "", false, true},
		{"one", "", false, true},
		{"leader(lock-3)", "lock-3", false, true},
		{"leader or all", "", false, true},
		{"leader, redis-1 or one", "", false, true},
		{"one(lock-3)", "", false, false},
		{"leader or redis-2", "", false, false},
		{"holder()", "", false, false},
		{"redis-2", "", false, false},
		{"", "", false, false},
		{"Leader", "", false, false},
	} {
		sel, err := ParseSelector(c.text, []string{"redis-1"})
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if err != nil {
			if !strings.Contains(err.Error(), "redis-1") || !strings.Contains(err.Error(), "majority") {
				t.Errorf("%q: the error does not say what there is: %v", c.text, err)
			}
			continue
		}
		lock, holder := sel.Holder()
		if lock != c.lock || holder != c.holder || sel.String() != c.text {
			t.Errorf("%q: lock %q, holder %t, text %q", c.text, lock, holder, sel)
		}
	}
}

func TestFar(t *testing.T) {
	names := []string{"s1", "s2", "s3", "s4", "s5", "c1"}
	all := nodes(names...)
	view := View{All: all, Servers: all[:5], Clients: all[5:], Service: roles{"s1": "leader", "s2": "follower", "s3": "follower"}, Except: all[:2]}
	for text, want := range map[string]string{
		"rest": "s3 s4 s5 c1", "all": "s3 s4 s5", "majority": "s3 s4 s5", "followers": "s3", "c1, s4": "s4 c1", "all, s4, clients": "s3 s4 s5 c1",
		"leader": "error", "s1": "error",
	} {
		sel, err := ParseFar(strings.Split(text, ", "), names)
		if err != nil {
			t.Fatal(err)
		}
		view.Random = seed.Rand(1, "t")
		got, err := sel.Resolve(t.Context(), view)
		if said := joinNames(got); (err != nil) != (want == "error") || err == nil && said != want {
			t.Errorf("%s: %s, %v; want %s", text, said, err, want)
		}
	}
	view.Except = all[:3]
	view.Random = seed.Rand(1, "t")
	sel, _ := ParseFar(Names{"majority"}, names)
	if _, err := sel.Resolve(t.Context(), view); err == nil || !strings.Contains(err.Error(), "3 servers of 5, but only 2 are not targets") {
		t.Errorf("a majority beside a majority: %v", err)
	}
	for _, bad := range []Names{{"holder"}, {"nobody"}, {"all", ""}} {
		if _, err := ParseFar(bad, names); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := ParseSelector("holder, s1", names); err == nil {
		t.Error("a holder and another were taken")
	}
	if _, err := ParseSelector("rest", names); err == nil {
		t.Error("rest was taken for a target")
	}
	several, err := ParseSelector("s2,s1", names)
	if err != nil || !slices.Equal(several.Parts(), []string{"s2", "s1"}) {
		t.Errorf("several targets: %v, %v", several, err)
	}
}

func TestMayPick(t *testing.T) {
	for text, want := range map[string]string{
		"one": "s1 s2", "leader(lock-0)": "s1 s2", "holder": "c1", "clients, s2": "s2 c1", "s1": "s1", "leader or holder(x)": "", "leader or s2, c1": "s1 s2 c1",
	} {
		sel, err := ParseSelector(text, []string{"s1", "s2", "c1"})
		if err != nil {
			if want != "" {
				t.Error(err)
			}
			continue
		}
		var got []string
		for _, n := range []string{"s1", "s2", "c1"} {
			if sel.MayPick(n, map[byte]node.Role{'s': node.Server, 'c': node.Client}[n[0]]) {
				got = append(got, n)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s may pick %v, want %s", text, got, want)
		}
	}
	far, err := ParseFar(Names{Rest}, nil)
	if err != nil || !far.MayPick("r", node.Resource) {
		t.Errorf("the rest may not be a resource: %v", err)
	}
}
