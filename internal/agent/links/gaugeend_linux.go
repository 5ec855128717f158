package links

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

const (
	gaugeBuffer = 4 << 20
	// bindPatience is how long to wait for a port that another measurement uses.
	bindPatience = 3 * time.Second
	// dialPatience is how long to wait for a connection.
	dialPatience = time.Second
)

// gaugeEnd is the agent's socket in one namespace.
type gaugeEnd struct {
	space    *namespace
	socket   *net.UDPConn
	listener net.Listener // accepts dials, if asked for; the kernel completes the connections
	ended    chan struct{}
	damaged  uint64 // by the kernel's counts, before the measurement
}

func openGaugeEnd(ctx context.Context, of proc.Process, at links.ProbeEnd) (*gaugeEnd, error) {
	host, err := netip.ParseAddr(at.Address)
	if err != nil {
		return nil, err
	}
	space, err := openNamespace(of)
	if err != nil {
		return nil, err
	}
	e := &gaugeEnd{space: space}
	for until := clock.Now() + int64(bindPatience); ; {
		err = space.do(func() (err error) {
			e.socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, at.Port)))
			if err == nil {
				e.damaged, err = wrongChecksums()
			}
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) || clock.Now() > until || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	e.widen()
	return e, nil
}

// listen opens the listener, once.
func (e *gaugeEnd) listen() error {
	if e.listener != nil {
		return nil
	}
	return e.space.do(func() (err error) {
		e.listener, err = net.Listen("tcp4", net.JoinHostPort(e.socket.LocalAddr().(*net.UDPAddr).IP.String(), "0"))
		return err
	})
}

// widen enlarges the socket's buffer for datagrams that arrive while this process is descheduled: what the buffer loses
// is not the link's loss.
func (e *gaugeEnd) widen() {
	raw, err := e.socket.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE,
				gaugeBuffer)
		})
	}
	if err != nil {
		_ = e.socket.SetReadBuffer(gaugeBuffer) // capped by the system's limit
	}
}

func (e *gaugeEnd) close() {
	if e.listener != nil {
		_ = e.listener.Close()
	}
	if e.socket != nil {
		_ = e.socket.Close()
	}
	if e.ended != nil {
		<-e.ended
	}
	_ = e.space.close()
}

// dial connects from the namespace and returns the outcome.
func (e *gaugeEnd) dial(ctx context.Context, address string) (outcome string, took time.Duration) {
	began := clock.Now()
	err := e.space.do(func() error {
		c, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp4", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	took = time.Duration(clock.Now() - began)
	var late net.Error
	switch {
	case err == nil:
		return links.Connected, took
	case errors.Is(err, unix.ECONNREFUSED):
		return links.Refused, took
	case errors.As(err, &late) && late.Timeout():
		return links.Silent, took
	}
	return err.Error(), took
}

// wrongChecksums returns how many segments and datagrams were dropped for a wrong checksum in this thread's network
// namespace.
func wrongChecksums() (uint64, error) {
	f, err := os.Open("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("inspect the network's counters: %w", err)
	}
	defer func() { _ = f.Close() }()
	var sum uint64
	names := map[string][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); { // a line of names, then one of numbers, for each protocol
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		protocol := fields[0]
		if names[protocol] == nil {
			names[protocol] = fields
			continue
		}
		if i := slices.Index(names[protocol], "InCsumErrors"); (protocol == "Tcp:" || protocol == "Udp:") && i > 0 &&
			i < len(fields) {
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the network's counters: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}
