//go:build !unix

package wire

// CPU returns 0: this system does not report it.
func CPU() int64 { return 0 }
