package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sort makes the current classes and the filters to them, and then removes the earlier filters. Classes that get no
// more packets stay until one of their faults is removed: packets may wait in them.
func (t *tree) sort(h *netlink.Handle) error {
	wanted := t.wanted()
	for _, c := range wanted {
		if minor := t.class(c); t.classes[minor] == nil {
			if err := t.addClass(h, minor); err != nil {
				return err
			}
		}
	}
	before := t.firstFilter()
	t.sorted++
	for _, c := range wanted {
		keys, err := c.keys()
		if err != nil {
			return err
		}
		for _, k := range keys {
			err := h.FilterAdd(&netlink.U32{
				// Filters with more ports come first.
				FilterAttrs: t.filter(t.firstFilter() + uint16(treeFaults-len(c.ports))),
				ClassId:     netlink.MakeHandle(treeMajor, t.class(c)),
				Sel:         &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: k},
			})
			if err != nil {
				return fmt.Errorf("make a filter of traffic control (u32): %w", err)
			}
		}
	}
	if t.sorted == 1 {
		return nil
	}
	var errs []error
	for p := before; p <= before+treeFaults; p++ {
		if err := h.FilterDel(&netlink.U32{FilterAttrs: t.filter(p)}); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("remove a filter of traffic control: %w", err))
		}
	}
	return errors.Join(errs...)
}

// firstFilter returns the priority of the first filters. It alternates between two ranges, so that new filters do not
// collide with the ones they replace.
func (t *tree) firstFilter() uint16 {
	if t.sorted%2 == 0 {
		return 1
	}
	return 1 + treeFaults + 1
}

func (t *tree) filter(priority uint16) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: t.link, Parent: netlink.MakeHandle(treeMajor, 0), Priority: priority,
		Protocol: unix.ETH_P_IP,
	}
}

// keys returns the words that identify a packet: its destination, and its TCP and UDP ports behind an IP header without
// options. A packet matches if any of the lists does. There is none if ports contradict each other.
func (c choice) keys() ([][]netlink.TcU32Key, error) {
	peer, err := netip.ParseAddr(c.peer)
	if err != nil || !peer.Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address", c.peer)
	}
	const protocolAt, destinationAt, portsAt = 8, 16, 20 // word offsets in the IPv4 packet
	to := netlink.TcU32Key{Mask: 0xffffffff, Val: binary.BigEndian.Uint32(peer.AsSlice()), Off: destinationAt}
	if len(c.ports) == 0 {
		return [][]netlink.TcU32Key{{to}}, nil
	}
	ports := netlink.TcU32Key{Off: portsAt}
	for _, r := range c.ports {
		for _, p := range []struct {
			number uint16
			shift  int
		}{{r.Port, 16}, {r.PeerPort, 0}} {
			if p.number == 0 {
				continue
			}
			mask, value := uint32(0xffff)<<p.shift, uint32(p.number)<<p.shift
			if ports.Mask&mask != 0 && ports.Val&mask != value {
				return nil, nil
			}
			ports.Mask, ports.Val = ports.Mask|mask, ports.Val|value
		}
	}
	var out [][]netlink.TcU32Key
	for _, protocol := range []uint32{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		out = append(out, []netlink.TcU32Key{to, {Mask: 0x00ff0000, Val: protocol << 16, Off: protocolAt}, ports})
	}
	return out, nil
}
