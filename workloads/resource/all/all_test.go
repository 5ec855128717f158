package all

import (
	"testing"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/workloads/resource"
)

func TestKindsDescribeTheirNodes(t *testing.T) {
	for _, k := range All() {
		reached, spoken := 0, 0
		for _, s := range k.Specs() {
			if s.Role != node.Resource || s.Restartable || s.Name == "" || len(s.Command(node.Place{})) == 0 {
				t.Errorf("%s: %+v", k.Name, s)
			}
			if len(s.Ports) > 0 {
				reached++
			}
			if s.Stdio {
				spoken++
				if argv := s.Command(node.Place{}); argv[0] != node.SelfProgram {
					t.Errorf("%s: %v speaks the protocol", k.Name, argv)
				}
			}
		}
		if reached == 0 && k.Within == "" || spoken == 0 || k.Dial == nil || k.Doc == "" {
			t.Errorf("%s: %d nodes are reached, %d speak the protocol", k.Name, reached, spoken)
		}
		if _, ok := resource.Find(All(), k.Name); !ok || k.Guards[0].Name != resource.GuardNone {
			t.Errorf("%s: guards %v", k.Name, k.Guards)
		}
		for _, g := range k.Guards {
			if g.Doc == "" {
				t.Errorf("%s: guard %s says nothing of itself", k.Name, g.Name)
			}
		}
	}
}
