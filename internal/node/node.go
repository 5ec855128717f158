// Package node describes the nodes of a run: what each is to be, where it is placed, and how it is reached once it
// runs.
package node

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Role is what a node is for.
type Role string

// The roles. The supervisor is never a node.
const (
	Server   Role = "server"
	Client   Role = "client"
	Resource Role = "resource"
)

// Port is a TCP port that a node listens on.
type Port struct {
	Name   string // such as "client" or "peer"
	Number int    // the standard one; used where the node has an address of its own
}

// Preparation is something that a node must have before it starts, so that a fault can be injected into it later.
// The provider makes it, or says why it cannot.
type Preparation string

// Spec describes a node to be started.
type Spec struct {
	Name  string
	Role  Role
	Ports []Port
	// Image is the image key ("redis", "etcd", "lockquake"); the provider maps it to an image or a binary.
	Image string
	// Named says that Image is an image itself, and no key.
	Named bool
	// Folder is a folder of this machine that the node has at Place.Folder; "": none. It is for programs that are in no
	// image.
	Folder string
	// Command makes argv. The first word is a program found on PATH, or SelfProgram for lockquake's own binary.
	Command func(Place) []string
	// Secret makes the text of a file that only the node's program reads, from the run's password: a command line
	// would show it. It may be nil.
	Secret func(password string) string
	// Env holds extra "KEY=value" settings.
	Env []string
	// Limits holds the node's process and its children to a share of the machine.
	Limits Limits
	// Go says that the program is written in Go, and so asks the kernel for the time, not the C library.
	Go bool
	// SyncThreads is what the names of the program's threads begin with that call fsync and its like, where it is known
	// that no others do.
	SyncThreads []string
	// Preparations are what the run's faults need of the node before it starts.
	Preparations []Preparation
	// Stdio asks for the node's standard input and output as its control stream.
	Stdio bool
	// Alike says that its process has the process id, the host name and, to the second, the start time of all others
	// that are alike and are started with it.
	Alike bool
	// Restartable says that the node may be started again after its process ended.
	Restartable bool
	// StopSignal is the signal that asks the process to end in order, such as "INT"; "" is SIGTERM.
	StopSignal string
	// RestartDelay is how long every start but the first waits before it begins. A server then comes back only when
	// every lease that it forgot is over.
	RestartDelay time.Duration
}

// SelfProgram as the first word of a command means lockquake's own binary, wherever the provider keeps it.
const SelfProgram = "lockquake"

// Own is the command line of one of lockquake's own nodes: client, register, replica, objects, ledger, agent, etcd.
func Own(kind string, args ...string) []string {
	return append([]string{SelfProgram, "node", kind}, args...)
}

// Handle is a running node, as its service is asked through it from outside the run.
type Handle interface {
	Name() string
	// Address returns "host:port" of a named port, as seen inside the run's network.
	Address(port string) string
	// Login is what the node asks of whoever connects.
	Login() Login
	// Dial connects to a named port.
	Dial(ctx context.Context, port string) (net.Conn, error)
}

// ListenOn returns the address on which a server listens that others reach at host. In a namespace or container of
// its own that is every address, because it is also dialled from inside. Where it shares the machine's network, it
// is the loopback address alone.
func ListenOn(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return host
	}
	return "0.0.0.0"
}
