// Package all lists the faults: one line per folder.
package all

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/chaos/service"
	"github.com/lockquake/lockquake/chaos/shell"
)

// Kinds returns all faults in display order.
func Kinds() []chaos.Kind {
	all := slices.Concat(
		process.Kinds(),
		links.Kinds(),
		clock.Kinds(),
		disk.Kinds(),
		service.Kinds(),
		shell.Kinds(),
	)
	place := func(k chaos.Kind) int { return cmp.Or(k.Place, len(all)+1) }
	slices.SortStableFunc(all, func(a, b chaos.Kind) int { return cmp.Compare(place(a), place(b)) })
	return all
}
