package etcd

import (
	"os"
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/etcd/node"
)

// TestMain turns the test binary into a member, a second client process, or the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "node" && os.Args[2] == "etcd" {
		if err := node.RunNode(os.Args[3:]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	conformance.Main(m, Backend().Backend)
}
