package tryout

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/scenarios"
)

// TestScenariosCanBeRead reads the scenario of every fault on every backend, and has every fault take its own keys.
func TestScenariosCanBeRead(t *testing.T) {
	pairs := 0
	for _, b := range all.All() {
		if b.InProcess {
			continue
		}
		for _, k := range faults.Kinds() {
			for i := range k.Trials() {
				o, err := One(k, i, b)
				if err != nil {
					t.Fatal(err)
				}
				s, err := scenarios.Parse([]byte(Scenario(o)), o.Name+".yaml")
				if err != nil {
					t.Errorf("%v\n%s", err, Scenario(o))
					continue
				}
				if _, err := k.New(s.Chaos[0].Params.Decode); err != nil {
					t.Errorf("%s does not take what its kind says for trying it out: %v", k.Name, err)
				}
				if b.Name == "etcd" && !strings.Contains(s.Chaos[0].On, "leader") {
					t.Errorf("%s hits %s, not the leader", o.Name, s.Chaos[0].On)
				}
				pairs++
			}
		}
	}
	if pairs < 7*len(faults.Kinds()) {
		t.Errorf("%d pairs", pairs)
	}
}
