//go:build !unix

package history

import "errors"

// These flags do not exist here.
const (
	noWait   = 0
	noFollow = 0
)

var errLink = errors.New("a link")
