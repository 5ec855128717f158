package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/clock"
)

// forgeTries bounds how often a reset is forged anew, because data arrived after the sequence numbers were read.
const (
	forgeTries = 5
	// forgeArrives is the time within which this end's kernel acts on a reset.
	forgeArrives = 50 * time.Millisecond
)

// forgeResets resets a connection of the thread's namespace as a middlebox does: it sends each end a reset segment in
// the name of the other. So both ends see ECONNRESET, whereas an end whose kernel is told to destroy its socket sees
// ECONNABORTED, which libraries may treat differently.
//
// A kernel accepts a reset only with the very sequence number that it expects next. Only the socket knows that number,
// so the socket is borrowed from its process for the question. The segment for this end enters by the loopback
// interface, which link faults leave alone. That for the other end takes the link.
func forgeResets(c links.Connection, at descriptor) error {
	socket, err := at.borrow()
	if err != nil {
		return fmt.Errorf("borrow the socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer func() { _ = unix.Close(raw) }()
	for range forgeTries {
		next, err := sequencesOf(socket)
		if err != nil {
			return fmt.Errorf("read the sequence numbers: %w", err)
		}
		in := segment{from: c.Peer, to: c.Own, fromPort: c.PeerPort, toPort: c.Port, seq: next.in, ack: next.out}
		if err := in.send(raw); err != nil {
			return fmt.Errorf("send a reset to this end: %w", err)
		}
		for end := clock.Now() + int64(forgeArrives); clock.Now() < end; time.Sleep(time.Millisecond) {
			if still, err := isEstablished(c); err != nil || still {
				continue
			}
			out := segment{from: c.Own, to: c.Peer, fromPort: c.Port, toPort: c.PeerPort, seq: next.out, ack: next.in}
			// a filter of this namespace may refuse it; whether it arrived is looked for at the other end
			if err := out.send(raw); err != nil && !errors.Is(err, unix.EPERM) {
				return fmt.Errorf("send a reset to the other end: %w", err)
			}
			return nil
		}
	}
	return errors.New("this end did not accept a forged reset")
}

// descriptor is an open socket of a process.
type descriptor struct{ pid, number int }

// borrow duplicates the socket.
func (d descriptor) borrow() (int, error) {
	if d.pid == 0 {
		return -1, errors.New("no process has it")
	}
	process, err := unix.PidfdOpen(d.pid, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(process) }()
	return unix.PidfdGetfd(process, d.number, 0)
}

// descriptors returns where the TCP sockets of the thread's namespace are open, by cookie. Of several processes that
// share a socket it returns one.
func descriptors() (map[uint64]descriptor, error) {
	cookies := map[string]uint64{} // by what a descriptor links to below /proc
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := tcpSockets(family)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			cookies[fmt.Sprintf("socket:[%d]", s.INode)] = cookieOf(s)
		}
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return nil, err
	}
	out := map[uint64]descriptor{}
	for _, file := range files {
		to, err := os.Readlink(file)
		cookie, ours := cookies[to]
		if err != nil || !ours {
			continue
		}
		parts := strings.Split(file, "/") // "", proc, PID, fd, NUMBER
		pid, _ := strconv.Atoi(parts[2])
		number, _ := strconv.Atoi(parts[4])
		out[cookie] = descriptor{pid, number}
	}
	return out, nil
}

// sequences are the numbers of the next bytes that a socket expects and sends.
type sequences struct{ in, out uint32 }

// sequencesOf reads them in the socket's repair mode. It is on for these calls only; bytes that its process writes
// meanwhile are lost with the connection.
func sequencesOf(socket int) (out sequences, err error) {
	if err := unix.SetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); err != nil {
		return out, err
	}
	const receiveQueue, sendQueue = 1, 2 // TCP_RECV_QUEUE and TCP_SEND_QUEUE of include/uapi/linux/tcp.h
	for queue, next := range map[int]*uint32{receiveQueue: &out.in, sendQueue: &out.out} {
		failed := unix.SetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue)
		n := 0
		if failed == nil {
			n, failed = unix.GetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
		}
		*next, err = uint32(n), errors.Join(err, failed)
	}
	return out, errors.Join(err,
		unix.SetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
}

// segment is a reset of a connection, in the name of one of its ends.
type segment struct {
	from, to         string // IPv4 addresses
	fromPort, toPort uint16
	seq, ack         uint32
}

// send sends it; the kernel fills in the length and the checksum of the IP header.
func (s segment) send(raw int) error {
	from, to := net.ParseIP(s.from).To4(), net.ParseIP(s.to).To4()
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 4<<4|5, 64, unix.IPPROTO_TCP // version and header words, hops, protocol
	copy(ip[12:], from)
	copy(ip[16:], to)
	out := &unix.SockaddrInet4{Addr: [4]byte(to)}
	return unix.Sendto(raw, append(ip, s.tcp(from, to)...), 0, out)
}

// tcp returns the TCP header.
func (s segment) tcp(from, to net.IP) []byte {
	const rst, ack = 0x04, 0x10
	h := binary.BigEndian.AppendUint16(nil, s.fromPort)
	h = binary.BigEndian.AppendUint16(h, s.toPort)
	h = binary.BigEndian.AppendUint32(h, s.seq)
	h = binary.BigEndian.AppendUint32(h, s.ack)
	h = append(h, 5<<4, rst|ack, 0, 0, 0, 0, 0, 0) // header words, flags, window, checksum, urgent pointer
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(h))
	for _, part := range [][]byte{from, to, h} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(h[16:], ^uint16(sum))
	return h
}
