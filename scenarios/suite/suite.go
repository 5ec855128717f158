// Package suite embeds the stories of the regression suite, one file each. Package internal/stories reads them and
// states what holds for all of them.
package suite

import "embed"

// Files are the stories.
//
//go:embed *.yaml
var Files embed.FS
