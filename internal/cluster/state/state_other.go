//go:build !linux

package state

import (
	"os"
)

func ownedByUs(os.FileInfo) bool { return true }
