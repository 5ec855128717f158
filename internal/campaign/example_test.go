package campaign_test

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
)

// untilRed makes runs of one job until one fails, ten at most: the next job depends on the results so far.
type untilRed struct{ job campaign.Job }

func (p untilRed) Next(done []campaign.Result) (campaign.Job, bool) {
	if n := len(done); n == 10 || n > 0 && (done[n-1].Verdict == "fail" || done[n-1].NotMade != "") {
		return campaign.Job{}, false
	}
	return p.job, true
}

// printer prints the result of each run.
type printer struct{}

func (printer) Begin(campaign.Job, *engine.Options) {}

func (printer) End(j campaign.Job, r *campaign.Result) error {
	fmt.Println(j.Name, r.NotMade)
	return nil
}

// A campaign keeps servers from run to run, and resumes from its journal.
func Example() {
	c := campaign.Campaign{Kept: &engine.KeptServers{}, Reader: printer{}}
	done, err := c.Run(context.Background(), untilRed{campaign.Job{Name: "one more try", Cannot: engine.MissingError{Text: "no engine answers"}}})
	fmt.Println(len(done), err)
	// Output:
	// one more try no engine answers
	// 1 <nil>
}
