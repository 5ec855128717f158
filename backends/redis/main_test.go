package redis

import (
	"flag"
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
)

func TestMain(m *testing.M) {
	// Most of the time the checks wait for keys to expire. The command line, which is read later, has the last word.
	_ = flag.Set("test.parallel", "4")
	conformance.Main(m, Backends()...)
}
