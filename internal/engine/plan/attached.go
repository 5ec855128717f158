package plan

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/cluster"
)

// Attached is an external service. A run writes only below the prefix, under a name of its own, and removes what it
// wrote. It changes nothing else of the service.
type Attached struct {
	Backend   string
	Prefix    string
	Master    string             // the primary's name in the Sentinels
	Database  string             // of Postgres; "": postgres
	Endpoints []cluster.Endpoint // of servers
	// Trip is the round trip to the nearest endpoint from where clients run: the fastest of some connects. Visit sets
	// it.
	Trip time.Duration
}

// ports counts the endpoints by the names of their ports.
func (a *Attached) ports() map[string]int {
	out := map[string]int{}
	for _, e := range a.Endpoints {
		out[e.Port]++
	}
	return out
}

// Addresses lists the endpoints.
func (a *Attached) Addresses() string {
	var list []string
	for _, e := range a.Endpoints {
		list = append(list, e.Address)
	}
	return strings.Join(list, ", ")
}

// below returns the prefix of one run.
func (a *Attached) below(run string) string { return a.Prefix + run + "/" }

// NewID returns a random run id that fits into the names of containers and network links.
func NewID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
