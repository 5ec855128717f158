//go:build !unix

package client

import "os"

// die ends the calling process at once.
func die() error {
	os.Exit(137)
	return nil
}
