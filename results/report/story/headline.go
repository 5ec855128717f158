package story

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// title returns the headline: the finding.
func title(sc *scene.Scene) string {
	if n := sc.Report.Counts["double_grants"]; sc.Whole && n != nil && *n > 1 {
		title := figure.Of(*n, "double grant") + " of " + sc.Lock()
		if f := sc.Report.Counts["foreign_releases"]; f != nil && *f > 1 {
			title += ", in a cascade of " + figure.Of(*f, "foreign release")
		}
		return title
	}
	if sc.Cause != nil {
		freed := sc.Name(sc.Cause.Events[slices.IndexFunc(sc.Cause.Events, func(e history.Event) bool {
			return e.Kind == history.Release && e.Time == sc.Cause.From
		})].User)
		return "Double grant: " + freed + " releases the grant of " + sc.Name(sc.Worst.Holds[0].User) + ", and " +
			sc.Name(sc.Worst.Holds[1].User) + " is granted the lock"
	}
	if sc.Worst != nil {
		return capital(headline(sc, *sc.Worst))
	}
	clean := "no double grant"
	for _, name := range []string{"double_grants", "overlapping_holds"} {
		if n := sc.Report.Counts[name]; n == nil || *n > 0 {
			clean = ""
		}
	}
	found := ""
	switch n := sc.Report.Counts["stuck_locks"]; {
	case n != nil && *n > 0:
		found = "Stuck lock: users ask for " + sc.Lock() + " without a grant"
	case sc.Gap != nil:
		found, _, _ = strings.Cut(sc.Gap.Text, ": ") // the reason follows below
		found, _, _ = strings.Cut(found, "; ")
	case sc.Handoff != nil:
		found = "A handoff, while " + strconv.Itoa(sc.Handoff.Waiting) + " wait: " + figure.Duration(sc.Handoff.Long())
	}
	switch {
	case found != "" && clean != "":
		return found + "; " + clean
	case found != "":
		return found
	case clean != "":
		return capital(clean)
	}
	return sc.Env.Scenario
}

// exactMS matches a time to the microsecond, which is too precise for a sentence.
var exactMS = regexp.MustCompile(`\b([0-9]+\.[0-9])[0-9]{2} ms`)

// text returns the finding as a sentence.
func text(sc *scene.Scene) string {
	if sc.Worst != nil {
		t := sc.Named(sc.Worst.Text)
		if sc.Cause != nil {
			t = sc.Named(sc.Cause.Text) + ". Then " + t
		}
		return capital(exactMS.ReplaceAllString(t, "$1 ms"))
	}
	if sc.Gap != nil {
		return sc.Gap.Text
	}
	return strings.Join(strings.Fields(sc.Report.Claim), " ")
}

// foot describes the run.
func foot(env results.Env) string {
	parts := []string{env.Scenario}
	if env.Backend != "" {
		parts = append(parts, strings.TrimSuffix(env.Backend+", lock "+env.Lock, ", lock "))
	}
	if env.TTL > 0 {
		parts = append(parts, "TTL "+figure.Duration(env.TTL))
	}
	if env.Resource != "" {
		parts = append(parts, "guard "+cmp.Or(env.Guard, "none"))
	}
	if env.Provider != "" {
		parts = append(parts, env.Provider)
	}
	return strings.Join(append(parts, fmt.Sprintf("seed %d", env.Seed)), " · ")
}

// headline returns the title of a witness.
func headline(sc *scene.Scene, w results.Witness) string {
	who := "two clients"
	if len(w.Holds) > 2 { // the lock has several permits
		who = fmt.Sprintf("%d clients", len(w.Holds))
	}
	if sc.Whole && len(w.Holds) == 2 {
		who = sc.Name(w.Holds[0].User) + " and " + sc.Name(w.Holds[1].User)
	}
	return scene.Headline(w, who)
}

// headed adds what the scenario names to a headline that lacks it: counts, and measures in `about`.
func headed(sc *scene.Scene, title string) string {
	var more []string
	for _, x := range scene.TopicsOf(sc.Report) {
		if (x.Count || slices.Contains(sc.Report.About, x.Name)) && !scene.Mentions(title, x.Name) {
			more = append(more, x.String())
		}
	}
	switch {
	case len(more) == 0:
		return title
	case title == sc.Env.Scenario: // it says nothing
		return capital(figure.List(more))
	case sc.Worst == nil:
		return capital(figure.List(more)) + "; " + lower(title)
	}
	return title + "; " + figure.List(more)
}

// capital capitalises the first letter of a sentence.
func capital(text string) string {
	n := min(1, len(text))
	return strings.ToUpper(text[:n]) + text[n:]
}

// lower undoes capital.
func lower(text string) string {
	n := min(1, len(text))
	return strings.ToLower(text[:n]) + text[n:]
}
