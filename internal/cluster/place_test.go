package cluster

import (
	"net/netip"
	"os"
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

func TestSubnetAvoidsWhatIsInUse(t *testing.T) {
	used := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("172.17.0.0/16")}
	first, n, err := freeSubnet("run", 0, used)
	if err != nil || n != 0 || first.Bits() != 24 {
		t.Fatalf("first: %v, number %d, %v", first, n, err)
	}
	wide := netip.PrefixFrom(first.Addr(), 16).Masked()
	second, n, err := freeSubnet("run", 0, append(used, wide))
	if err != nil || second.Overlaps(wide) || n == 0 {
		t.Errorf("second: %v, number %d, %v", second, n, err)
	}
	if _, _, err := freeSubnet("run", 0, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/10")}); err == nil {
		t.Error("a subnet was found where all are taken")
	}
	all := netip.MustParsePrefix("10.128.0.0/10")
	for i := range 1000 {
		if p := subnet("x", i); !all.Contains(p.Addr()) {
			t.Fatalf("subnet %v lies outside", p)
		}
	}
}

func TestPlaces(t *testing.T) {
	specs := []node.Spec{echoSpec("a"), echoSpec("b")}
	p := ownAddresses(specs, netip.MustParsePrefix("10.140.7.0/24")).Of("b", "/data")
	if p.Address("a", "main") != "10.140.7.10:7000" || p.Address("b", "spare") != "10.140.7.11:7001" || p.Host("b") != "10.140.7.11" {
		t.Errorf("own addresses: %+v", p)
	}
	if p.Self != "b" || p.Dir != "/data" {
		t.Errorf("own name and directory: %+v", p)
	}
	p, ports, err := loopback(specs)
	if err != nil {
		t.Fatal(err)
	}
	defer ports.release()
	seen := map[string]bool{}
	for _, node := range []string{"a", "b"} {
		for _, port := range []string{"main", "spare"} {
			addr, err := netip.ParseAddrPort(p.Address(node, port))
			if err != nil || seen[addr.String()] || addr.Port() >= 32000 || !addr.Addr().IsLoopback() {
				t.Errorf("%s/%s is at %v, %v", node, port, addr, err)
			}
			seen[addr.String()] = true
		}
	}
}

func TestThreadStatesOfTheEnginesPs(t *testing.T) {
	rows := [][]string{{"7", "7", "Tsl"}, {"7", "9", "Tl"}, {"8", "8", "S"}, {"7"}}
	s, err := threadStates(7, []string{"PID", "LWP", "STAT"}, rows)
	if err != nil || !s.Stopped() || s.Threads["T"] != 2 {
		t.Errorf("stopped: %v, %v", s, err)
	}
	if s, err := threadStates(9, []string{"PID", "LWP", "STAT"}, rows); err != nil || !s.Gone() {
		t.Errorf("absent: %v, %v", s, err)
	}
	if _, err := threadStates(7, []string{"PID", "CMD"}, rows); err == nil {
		t.Error("a table without states was read")
	}
}

func TestGoneAndStoppedAreExact(t *testing.T) {
	mixed := chaos.ProcessState{PID: 5, Threads: map[string]int{"T": 3, "S": 1}}
	if mixed.Stopped() || mixed.Gone() {
		t.Error("one running thread is not stopped")
	}
}

func TestStaticBinaryIsTold(t *testing.T) {
	if err := staticLinux("/bin/sh"); err == nil {
		t.Error("a program with shared libraries was taken")
	}
	if err := staticLinux("place_test.go"); err == nil {
		t.Error("a text was taken for a program")
	}
	t.Setenv("LOCKQUAKE_BIN", "")
	if _, err := selfProgram(""); err == nil {
		t.Error("the test binary was taken for lockquake's own")
	}
	t.Setenv("LOCKQUAKE_BIN", "/bin/sh")
	if got, err := selfProgram(""); err != nil || got != "/bin/sh" {
		t.Errorf("LOCKQUAKE_BIN gives %q, %v", got, err)
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip(err)
	}
}

func TestAnAgentInAnotherPIDNamespaceIsRefused(t *testing.T) {
	if err := samePID(4711, &container.State{Pid: 4711}); err != nil {
		t.Error(err)
	}
	for _, engine := range []*container.State{nil, {}, {Pid: 1}} {
		if err := samePID(4711, engine); err == nil {
			t.Errorf("the engine says %+v, and the agent was taken", engine)
		}
	}
}
