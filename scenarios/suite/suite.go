// Package suite has the stories of the regression suite, a file each. Package internal/stories reads them, and says
// what is true of all of them.
package suite

import "embed"

// Files are the stories.
//
//go:embed *.yaml
var Files embed.FS
