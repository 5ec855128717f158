//go:build linux && !amd64 && !arm64

package agent

import "errors"

// stubTried tells whether the stub of this architecture was run on a real machine.
const stubTried = false

// There is no stub for this architecture: CanClock says so.
var (
	stubCode []byte
	patched  []entry
	landing  = []byte{0}
)

const stubShift, stubShifted = 0, 0

func jump(uint64, uint64) []byte { return nil }

func programCounter(int) (uint64, error) { return 0, errors.ErrUnsupported }
