// Package node describes the nodes of a run: their specification, placement, and access once they run.
package node

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Role is the purpose of a node.
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
	Number int    // the standard one; used if the node has its own address
}

// Preparation is something that a node needs before it starts, so that a fault can be injected later. The provider
// makes it, or returns why it cannot.
type Preparation string

// Spec describes a node to be started.
type Spec struct {
	Name  string
	Role  Role
	Ports []Port
	// Image is the image key ("redis", "etcd", "lockquake"); the provider maps it to an image or a binary.
	Image string
	// Named means that Image is an image itself, not a key.
	Named bool
	// Folder is a folder of this machine that the node gets at Place.Folder; "": none. It is for programs that are in
	// no image.
	Folder string
	// Command returns argv. The first word is a program on PATH, or SelfProgram for lockquake's own binary.
	Command func(Place) []string
	// Secret returns the text of a file with the run's password, which only the node's program reads: a command line
	// would expose it. It may be nil.
	Secret func(password string) string
	// Env holds extra "KEY=value" settings.
	Env []string
	// Limits limits the node's process and its children to a share of the machine.
	Limits Limits
	// Go means that the program is written in Go, which asks the kernel for the time and not the C library.
	Go bool
	// SyncThreads has the name prefixes of the program's threads that call fsync and similar system calls, if it is
	// known that no others do.
	SyncThreads []string
	// Preparations are what the run's faults need of the node before it starts.
	Preparations []Preparation
	// Stdio asks for the node's standard input and output as its control stream.
	Stdio bool
	// Alike gives its process the same process id, host name and start time, to the second, as all others with Alike
	// that are started with it.
	Alike bool
	// Restartable reports whether the node may be started again after its process ended.
	Restartable bool
	// StopSignal is the signal that asks the process to shut down, such as "INT"; "" is SIGTERM.
	StopSignal string
	// RestartDelay is how long every start except the first waits before it begins. With it a server comes back only
	// after every lease that it forgot has expired.
	RestartDelay time.Duration
}

// SelfProgram means lockquake's own binary as the first word of a command, wherever the provider keeps it.
const SelfProgram = "lockquake"

// Own returns the command line of one of lockquake's own nodes: client, register, replica, objects, ledger, agent,
// etcd.
func Own(kind string, args ...string) []string {
	return append([]string{SelfProgram, "node", kind}, args...)
}

// Handle is a running node through which its service is asked from outside the run.
type Handle interface {
	Name() string
	// Address returns "host:port" of a named port, as seen inside the run's network.
	Address(port string) string
	// Login returns what the node requires of its clients.
	Login() Login
	// Dial connects to a named port.
	Dial(ctx context.Context, port string) (net.Conn, error)
}

// ListenOn returns the address on which a server that others reach at host listens. In its own namespace or container
// that is every address, because it is also dialled from inside. If it shares the machine's network, it is the loopback
// address alone.
func ListenOn(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return host
	}
	return "0.0.0.0"
}
