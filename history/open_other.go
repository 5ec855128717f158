//go:build !unix

package history

import "errors"

// There is no such flag here.
const (
	noWait   = 0
	noFollow = 0
)

var errLink = errors.New("a link")
