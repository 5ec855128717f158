//go:build integration

package links

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
)

// TestStrayQdiscIsReported leaves a stray qdisc in the tree while a fault is active: the undo of another fault
// reports it.
func TestStrayQdiscIsReported(t *testing.T) {
	if e := tryEngines(); e[links.TBF] != "" {
		t.Skip(e[links.TBF])
	}
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	slow := links.Shaping{Engine: links.TBF, Rate: 1e6}
	for _, key := range []string{"one/x", "two/x", "three/x"} {
		shaped(t, c, key, x, y, slow)
	}
	if u := unfiltered(t, c, "one/x"); u.Others != 2 || len(u.Left) > 0 {
		t.Errorf("undone beside two: %+v", u)
	}
	h, err := netlinkIn(x.space)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link, err := linkTo(h, y.address)
	if err != nil {
		t.Fatal(err)
	}
	class := netlink.MakeHandle(treeMajor, 0x4000)
	if err := h.ClassAdd(netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: link, Parent: netlink.MakeHandle(treeMajor, 0), Handle: class}, netlink.HtbClassAttrs{Rate: treeRate, Ceil: treeRate},
	)); err != nil {
		t.Fatal(err)
	}
	if err := h.QdiscAdd(qdiscOf(netlink.QdiscAttrs{LinkIndex: link, Parent: class, Handle: netlink.MakeHandle(0x7777, 0)}, slow)); err != nil {
		t.Fatal(err)
	}
	if u := unfiltered(t, c, "two/x"); u.Others != 1 || len(u.Left) != 1 || !strings.Contains(u.Left[0], "tbf 7777:") {
		t.Errorf("undone beside one, and one that nobody accounts for: %+v", u)
	}
	if u := unfiltered(t, c, "three/x"); len(u.Left) > 0 {
		t.Errorf("the root took it along, and yet: %+v", u)
	}
}
