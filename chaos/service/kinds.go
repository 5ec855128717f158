// Package service has the faults for which nothing is done to a node: the service itself is asked, or nobody.
package service

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{noopKind(), failoverKind()}
}
