package servers

import (
	"slices"
	"testing"
)

// The example of the documentation of CLUSTER NODES, plus a node in the handshake and a migrating slot.
const nodesText = `07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,host4 slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.0.1:30002@31002 master,fail? - 0 1426238316232 2 connected 5461-10922
292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f 127.0.0.1:30003@31003 master - 0 1426238318243 3 connected 10923-16382
6ec23923021cf3ffec47632106199cb7f496ce01 127.0.0.1:30005@31005 handshake - 0 1426238316232 5 connected
e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5459 5460 [93->-292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f]
`

func TestView(t *testing.T) {
	v := parseView(nodesText)
	if len(v) != 5 {
		t.Fatalf("%d nodes", len(v))
	}
	if self := v.self(); self.address != "127.0.0.1:30001" || !slices.Equal(self.flags, []string{"master"}) {
		t.Errorf("self: %+v", self)
	}
	for slot, want := range map[int]string{0: "127.0.0.1:30001", 5460: "127.0.0.1:30001", 5461: "127.0.0.1:30002", 16382: "127.0.0.1:30003"} {
		if p := v.owner(slot); p == nil || p.address != want {
			t.Errorf("slot %d belongs to %+v, not %s", slot, p, want)
		}
	}
	if p := v.owner(16383); p != nil {
		t.Errorf("a slot that nobody has belongs to %+v", p)
	}
	if p := v.owner(93); p.address != "127.0.0.1:30001" {
		t.Errorf("a slot on its way belongs to %+v before it has arrived", p)
	}
	for slot, want := range map[int]string{5: "master", 6000: "none", 16383: "none"} {
		if got := v.roleFor(slot); got != want {
			t.Errorf("role for slot %d: %s", slot, got)
		}
	}
	ours := members{{name: "redis-2", address: "127.0.0.1:30002"}}
	if got := v.failing(ours); got != "redis-2" {
		t.Errorf("failing: %s", got)
	}
	if got := v.owner(16383).nameAmong(ours); got != "none" {
		t.Errorf("nobody is called %s", got)
	}
}

func TestOnlineReplicas(t *testing.T) {
	section := fields("# Replication\r\nrole:master\r\nconnected_slaves:3\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n" +
		"slave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\r\nslave2:ip=10.0.0.4,port=6379,state=online\r\nmaster_repl_offset:14\r\n")
	if n := online(section); n != 2 {
		t.Errorf("%d replicas are online", n)
	}
	if section["master_repl_offset"] != "14" || section["role"] != "master" {
		t.Errorf("fields: %v", section)
	}
}
