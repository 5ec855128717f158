package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
)

// tablePrefix is the name prefix of all packet filter tables that the agent makes.
const tablePrefix = "lockquake_"

// table is one of our packet filter tables in one namespace.
//
// It is made over netlink and not by the iptables program. Our own table shares no chain with other tables. So the
// container's own rules, which its DNS needs, stay untouched, and overlapping filters are independent. A table appears
// and vanishes in one transaction. Nothing needs to be installed on the machine or in the agent's image, and a change
// takes a millisecond. Counters are read from the rules themselves, not from a program's output.
//
// Example: redis-2 (10.1.2.11) is cut off from 10.1.2.10. The table lockquake_partition_1 in the namespace of redis-2
// gets a chain on the input hook with "not from lo, source address 10.1.2.10: count and drop", and one on the output
// hook with "destination address 10.1.2.10: count and drop". The undo deletes the table.
type table struct {
	space *namespace
	name  string
}

// tableOf returns the table of a key.
func tableOf(space *namespace, key string) table {
	return table{space: space, name: tablePrefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)}
}

func (t table) conn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithNetNSFd(t.space.fd()))
}

func (t table) ref() *nftables.Table {
	return &nftables.Table{Name: t.name, Family: nftables.TableFamilyIPv4}
}

// queueTarget has the final expressions of a rule that hands its packets to a handler: native, or legacy for a kernel
// without the native one.
type queueTarget struct{ native, legacy []expr.Any }

// install makes the table with its rules, atomically. to is for rules that hand their packets to a handler.
func (t table) install(rules []links.Rule, to queueTarget) error {
	err := t.installWith(rules, to.native)
	if errors.Is(err, unix.ENOENT) && to.legacy != nil {
		err = t.installWith(rules, to.legacy)
	}
	if err != nil {
		return fmt.Errorf("make the packet filter table %s: %w", t.name, err)
	}
	return nil
}

func (t table) installWith(rules []links.Rule, to []expr.Any) error {
	c, err := t.conn()
	if err != nil {
		return err
	}
	made := c.AddTable(t.ref())
	chains := map[bool]*nftables.Chain{}
	for _, r := range rules {
		variants, err := ruleExprs(r, to)
		if err != nil {
			return err
		}
		if chains[r.Out] == nil {
			chains[r.Out] = c.AddChain(baseChain(made, r.Out))
		}
		for _, v := range variants {
			c.AddRule(&nftables.Rule{Table: made, Chain: chains[r.Out], Exprs: v})
		}
	}
	return c.Flush()
}

// baseChain returns a chain for every packet that leaves, or enters, the namespace.
func baseChain(t *nftables.Table, out bool) *nftables.Chain {
	c := &nftables.Chain{
		Name: "in", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter,
	}
	if out {
		c.Name, c.Hooknum = "out", nftables.ChainHookOutput
	}
	return c
}

// remove deletes the table. A missing table is no error.
func (t table) remove() error {
	c, err := t.conn()
	if err != nil {
		return err
	}
	c.DelTable(t.ref())
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the packet filter table %s: %w", t.name, err)
	}
	return nil
}

// packets adds up what the rules have counted.
func (t table) packets() (uint64, error) {
	c, err := t.conn()
	if err != nil {
		return 0, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyIPv4)
	if err != nil {
		return 0, fmt.Errorf("list the chains of %s: %w", t.name, err)
	}
	var sum uint64
	for _, chain := range chains {
		if chain.Table.Name != t.name {
			continue
		}
		rules, err := c.GetRules(t.ref(), chain)
		if err != nil {
			return 0, fmt.Errorf("list the rules of %s: %w", t.name, err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					sum += counter.Packets
				}
			}
		}
	}
	return sum, nil
}

// ownTables lists our tables in a namespace.
func ownTables(space *namespace) ([]string, error) {
	all, err := allTables(space)
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, tablePrefix) }), err
}

// allTables lists all tables in a namespace.
func allTables(space *namespace) ([]string, error) {
	c, err := table{space: space}.conn()
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTables()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return nil, nil // a kernel without such tables
	}
	if err != nil {
		return nil, fmt.Errorf("list the packet filter tables: %w", err)
	}
	var out []string
	for _, t := range tables {
		out = append(out, t.Name)
	}
	return out, nil
}

// ruleExprs returns a rule as the kernel's expressions: one list for each protocol that needs its own.
func ruleExprs(r links.Rule, to []expr.Any) ([][]expr.Any, error) {
	peer, err := netip.ParseAddr(r.Peer)
	if err != nil || !peer.Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address", r.Peer)
	}
	const anyProtocol = 0
	protocols := []byte{anyProtocol}
	if r.Port != 0 || r.PeerPort != 0 {
		protocols = []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP}
	} else if r.How == links.Reject {
		protocols = []byte{unix.IPPROTO_TCP, anyProtocol}
	}
	var out [][]expr.Any
	for _, protocol := range protocols {
		e := peerExprs(r, peer.AsSlice())
		if protocol != anyProtocol {
			e = append(e, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal1([]byte{protocol}))
		}
		source, destination := r.PeerPort, r.Port
		if r.Out {
			source, destination = r.Port, r.PeerPort
		}
		e = append(append(e, port(0, source)...), port(2, destination)...)
		end, err := endExprs(r, protocol == unix.IPPROTO_TCP, to)
		if err != nil {
			return nil, err
		}
		out = append(out, append(append(e, &expr.Counter{}), end...))
	}
	return out, nil
}

// peerExprs compares the address of the other end. Packets that enter by the loopback interface are local, whatever
// their source address: above all the answer of a rejecting rule to its own node.
func peerExprs(r links.Rule, peer []byte) []expr.Any {
	const sourceAddress, destinationAddress = 12, 16 // offsets in the IPv4 header
	if r.Out {
		return []expr.Any{payload(expr.PayloadBaseNetworkHeader, destinationAddress, 4), equal1(peer)}
	}
	lo := make([]byte, unix.IFNAMSIZ)
	copy(lo, "lo")
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: lo},
		payload(expr.PayloadBaseNetworkHeader, sourceAddress, 4), equal1(peer),
	}
}

// port compares a port at an offset of the TCP or UDP header; 0 compares nothing.
func port(offset uint32, number uint16) []expr.Any {
	if number == 0 {
		return nil
	}
	return []expr.Any{
		payload(expr.PayloadBaseTransportHeader, offset, 2),
		equal1(binary.BigEndian.AppendUint16(nil, number)),
	}
}

func payload(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}
}

func equal1(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

// endExprs returns the verdict on a packet that was matched and counted.
func endExprs(r links.Rule, tcp bool, to []expr.Any) ([]expr.Any, error) {
	switch r.How {
	case links.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}, nil
	case links.Reject:
		if tcp {
			return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}, nil
		}
		const portUnreachable = 3
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable}}, nil
	case links.Hold, links.Shape:
		if to != nil {
			return to, nil
		}
	}
	return nil, fmt.Errorf("unknown action %q on packets", r.How)
}

// toQueue hands packets to a queue. They pass if no process reads it, so that a dead agent blocks nothing. A kernel
// without nft_queue may have iptables' target.
func toQueue(number uint16) queueTarget {
	return queueTarget{
		native: []expr.Any{&expr.Queue{Num: number, Total: 1, Flag: expr.QueueFlagBypass}},
		legacy: []expr.Any{toOldQueue(number)},
	}
}

// toOldQueue is the same with the target of iptables, NFQUEUE revision 3: struct xt_NFQ_info_v3, padded to 8 bytes.
func toOldQueue(number uint16) expr.Any {
	const queues, bypass = 1, 1
	info := make(xt.Unknown, 0, 8)
	for _, v := range []uint16{number, queues, bypass, 0} {
		info = binary.NativeEndian.AppendUint16(info, v)
	}
	return &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info}
}
