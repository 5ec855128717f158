package zookeeper

import (
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
)

// TestMain turns the test binary into a second client process, or the tests.
func TestMain(m *testing.M) { conformance.Main(m, Backend().Backend) }
