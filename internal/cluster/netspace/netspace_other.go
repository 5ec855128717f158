//go:build !linux

// Package netspace is for Linux only.
package netspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

var ErrLinux = errors.New("it needs Linux")

// Probe refuses.
func Probe() error { return ErrLinux }

// ProbeNetem refuses.
func ProbeNetem() error { return ErrLinux }

// Thread starts children; only Linux needs a system thread of its own for it.
type Thread struct{}

// NewThread makes one.
func NewThread() *Thread { return &Thread{} }

// Close does nothing.
func (t *Thread) Close() {}

// Confine does nothing.
func (t *Thread) Confine() error { return nil }

// Hub stands for the namespaces that only Linux has.
type Hub struct{ Subnet netip.Prefix }

// NewHub refuses.
func NewHub(*Thread, netip.Prefix, int, string) (*Hub, error) {
	return nil, errors.New("network namespaces need Linux")
}

// Dial refuses.
func (h *Hub) Dial(context.Context, net.Dialer, string) (net.Conn, error) {
	return nil, errors.New("network namespaces need Linux")
}

// Renew refuses.
func (h *Hub) Renew(*Thread, int, int) error { return ErrLinux }

// Network names none.
func (h *Hub) Network(int) string { return "" }

// Close does nothing.
func (h *Hub) Close() {}
