package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/cluster"
)

// imageChecker rejects nodes without an image.
type imageChecker struct {
	plan *Plan
	from Request
}

// check rejects an image for a kind of node that the scenario does not have.
func (p imageChecker) check() error {
	var keys []string
	for _, s := range p.plan.OwnSpecs() {
		if !slices.Contains(keys, s.Image) {
			keys = append(keys, s.Image)
		}
	}
	if _, several := p.from.Provider.(cluster.Surveyor); several {
		keys = append(keys, cluster.RelayImage)
	}
	for key := range p.from.Images {
		if !slices.Contains(keys, key) {
			return UsageError{Text: fmt.Sprintf("--image %s=...: %s has no such nodes; it has %s", key,
				p.plan.Scenario.Name, strings.Join(keys, ", "))}
		}
	}
	return p.hasImages()
}

// hasImages rejects nodes whose image is neither present nor named; so does a dry run.
func (p imageChecker) hasImages() error {
	imager, ok := p.from.Provider.(cluster.Imager)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range p.plan.OwnSpecs() {
		if s.Named || seen[s.Image] || p.from.Images[s.Image] != "" {
			continue
		}
		seen[s.Image] = true
		if err := imager.HasImage(s.Image); err != nil {
			return MissingError{
				Text: fmt.Sprintf("%s: %s cannot be made: %v", p.plan.Scenario.Name, s.Name, err), Err: err,
			}
		}
	}
	return nil
}
