//go:build !linux

package agent

// TryEngines tells which engines can be had.
func TryEngines() Engines {
	why := Supported().Error()
	return Engines{Netem: why, Queue: why, TBF: why}
}
