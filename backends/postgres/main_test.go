package postgres

import (
	"testing"

	"github.com/lockquake/lockquake/backends/conformance"
)

func TestMain(m *testing.M) { conformance.Main(m, Backend().Backend) }
