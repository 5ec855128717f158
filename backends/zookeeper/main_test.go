package zookeeper

import (
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
)

// TestMain makes the test's own binary a second client process, or the tests.
func TestMain(m *testing.M) { conformance.Main(m, Backend().Backend) }
