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

// Probe returns an error.
func Probe() error { return ErrLinux }

// ProbeNetem returns an error.
func ProbeNetem() error { return ErrLinux }

// Thread starts children; only Linux needs its own system thread for it.
type Thread struct{}

// NewThread returns a Thread.
func NewThread() *Thread { return &Thread{} }

// Close does nothing.
func (t *Thread) Close() {}

// Confine does nothing.
func (t *Thread) Confine() error { return nil }

// Hub stands for the namespaces that only Linux has.
type Hub struct{ Subnet netip.Prefix }

// NewHub returns an error.
func NewHub(*Thread, netip.Prefix, int, string) (*Hub, error) {
	return nil, errors.New("network namespaces need Linux")
}

// Dial returns an error.
func (h *Hub) Dial(context.Context, net.Dialer, string) (net.Conn, error) {
	return nil, errors.New("network namespaces need Linux")
}

// Renew returns an error.
func (h *Hub) Renew(*Thread, int, int) error { return ErrLinux }

// Network returns "".
func (h *Hub) Network(int) string { return "" }

// Close does nothing.
func (h *Hub) Close() {}
