//go:build !linux

package proc

import (
	"errors"
	"runtime"
	"time"
)

// Supported returns why processes cannot be inspected from outside on this system; nil if they can.
func Supported() error {
	return errors.New("the state of a process is read from /proc, which " + runtime.GOOS + " does not have")
}

func send(int, string) error { return Supported() }

func readThreads(int) (map[string]int, bool, error) { return nil, false, Supported() }

func StartTime(int) (uint64, error) { return 0, Supported() }

// CPU is not supported here.
func CPU(int) (time.Duration, error) { return 0, Supported() }

// FootprintOf is not supported here.
func FootprintOf(int) (Footprint, error) { return Footprint{}, Supported() }

// AddressSpace returns Unlimited here.
func AddressSpace() uint64 { return Unlimited }

// OpenFiles returns Unlimited here.
func OpenFiles() uint64 { return Unlimited }

// Running is only called for processes that were found. There are none here.
func (p Process) Running() bool { return p.Alive() }
