package nodes

import "testing"

func TestReplayCanBePasted(t *testing.T) {
	t.Parallel()
	set := []string{"expect.double_grants=>0", "run.for=3s"}
	n := Source{Flags: &Flags{Images: []string{"redis=redis:7.4"}}}
	want := "lockquake run etcd-healthy --provider docker --set 'expect.double_grants=>0' --set run.for=3s --image redis=redis:7.4"
	if got := n.Replay("etcd-healthy", set, "docker"); got != want {
		t.Errorf("replay is\n%s\nshould be\n%s", got, want)
	}
	n.other = "/opt/a client"
	if got := n.Replay("it's.yaml", set, "inproc"); got != `lockquake run 'it'\''s.yaml' --set 'expect.double_grants=>0' --set run.for=3s --image redis=redis:7.4` {
		t.Errorf("replay is %s", got)
	}
}

// TestReplayNamesTheProgramThatStoodIn: the command that repeats a run names the programs of its nodes, which the name
// of the lock does not imply.
func TestReplayNamesTheProgramThatStoodIn(t *testing.T) {
	t.Parallel()
	n := Source{Flags: &Flags{Images: []string{"lockquake=mine:1"}}, other: "/opt/a client"}
	want := "LOCKQUAKE_BIN='/opt/a client' lockquake run etcd-healthy --provider local --image lockquake=mine:1"
	if got := n.Replay("etcd-healthy", nil, "local"); got != want {
		t.Errorf("replay is\n%s\nshould be\n%s", got, want)
	}
	image := map[string]string{"lockquake": "mine:1"}
	for _, c := range []struct {
		provider string
		images   map[string]string
		want     string
	}{{"local", nil, "/opt/client"}, {"docker", image, "image mine:1"}, {"inproc", nil, ""}} {
		if got := standIn(c.provider, c.images, "/opt/client"); got != c.want {
			t.Errorf("on %s with images %v it is %q that stood in, should be %q", c.provider, c.images, got, c.want)
		}
	}
}
