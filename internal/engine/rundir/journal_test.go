package rundir

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
)

func TestJournalAcceptsLateResults(t *testing.T) {
	dir := t.TempDir()
	j := &Journal{}
	if err := j.Open(dir+"/engine.lqh", []string{"l"}); err != nil {
		t.Fatal(err)
	}
	j.Add(history.Event{Kind: history.Stall, Phase: history.Info, Value: 1})
	j.AddLate([]history.Event{{Time: 1, Kind: history.Ended, Phase: history.Info, Valid: 1}})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := history.OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var kinds []history.Kind
	for e := (history.Event{}); ; {
		if _, err := m.Next(&e); err != nil {
			break
		}
		kinds = append(kinds, e.Kind)
	}
	if want := []history.Kind{history.Ended, history.Stall}; !slices.Equal(kinds, want) {
		t.Fatalf("the file holds %v, want %v", kinds, want)
	}
}
