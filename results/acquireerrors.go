package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/lock"
)

// AcquireErrors is the name of the measure of acquires that ended in an error.
const AcquireErrors = "acquire_errors"

// brokenAcquires says that acquires ended in errors although no fault was planned, and names the most frequent error.
func (d *directory) brokenAcquires(measures map[string]*float64) []string {
	n := measures[AcquireErrors]
	if n == nil || *n == 0 || len(d.faults) > 0 {
		return nil
	}
	said := ""
	met := d.env.clientErrors()
	for _, text := range mostOften(met) {
		if !strings.Contains(text, lock.ErrContended.Error()) {
			said = fmt.Sprintf("; the most frequent error is %q (%d)", text, met[text])
			break
		}
	}
	return []string{fmt.Sprintf("%.0f acquires ended in an error other than contention%s", *n, said)}
}

// clientErrors counts the errors of all clients by text.
func (e Env) clientErrors() map[string]int64 {
	met := map[string]int64{}
	for _, c := range e.Clients {
		for text, n := range c.Errors {
			met[text] += n
		}
	}
	return met
}

// mostOften returns the texts with the highest counts first.
func mostOften(met map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(met), func(a, b string) int {
		return cmp.Or(cmp.Compare(met[b], met[a]), cmp.Compare(a, b))
	})
}
