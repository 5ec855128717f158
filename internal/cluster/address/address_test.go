package address

import (
	"net/netip"
	"testing"

	"github.com/lockquake/lockquake/internal/node"
)

func TestSubnetAvoidsUsedOnes(t *testing.T) {
	used := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("172.17.0.0/16")}
	first, n, err := FreeSubnet("run", 0, used)
	if err != nil || n != 0 || first.Bits() != 24 {
		t.Fatalf("first: %v, number %d, %v", first, n, err)
	}
	wide := netip.PrefixFrom(first.Addr(), 16).Masked()
	second, n, err := FreeSubnet("run", 0, append(used, wide))
	if err != nil || second.Overlaps(wide) || n == 0 {
		t.Errorf("second: %v, number %d, %v", second, n, err)
	}
	if _, _, err := FreeSubnet("run", 0, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/10")}); err == nil {
		t.Error("a subnet was found where all are taken")
	}
	all := netip.MustParsePrefix("10.128.0.0/10")
	for i := range 1000 {
		if p := Subnet("x", i); !all.Contains(p.Addr()) {
			t.Fatalf("subnet %v lies outside", p)
		}
	}
}

func TestPlaces(t *testing.T) {
	specs := []node.Spec{twoPorts("a"), twoPorts("b")}
	p := PutAll(specs, netip.MustParsePrefix("10.140.7.0/24")).Of("b", "/data")
	if p.Address("a", "main") != "10.140.7.10:7000" || p.Address("b", "spare") != "10.140.7.11:7001" || p.Host("b") != "10.140.7.11" {
		t.Errorf("own addresses: %+v", p)
	}
	if p.Self != "b" || p.Dir != "/data" {
		t.Errorf("own name and directory: %+v", p)
	}
	p, ports, err := Loopback(specs)
	if err != nil {
		t.Fatal(err)
	}
	defer ports.Release()
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

func twoPorts(name string) node.Spec {
	return node.Spec{Name: name, Ports: []node.Port{{Name: "main", Number: 7000}, {Name: "spare", Number: 7001}}}
}
