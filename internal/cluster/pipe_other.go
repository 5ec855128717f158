//go:build !linux

package cluster

import "os"

// blockingPipe is os.Pipe: off Linux the wake-ups of the runtime's poller are put up with.
func blockingPipe() (r, w *os.File, err error) { return os.Pipe() }
