package redis

import (
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/listed"
)

func TestMain(m *testing.M) { conformance.Main(m, listed.Clients(Backends())...) }
