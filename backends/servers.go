package backends

// Servers describes how a service keeps locks on its servers, and what these report about themselves. No other code
// knows a service by its name.
type Servers struct {
	// Majority says which servers must agree on a grant.
	Majority Majority
	// Standby means that another server takes over from a lost one, and may not know all grants.
	Standby bool
	// CountsLate means that they count requests some time later, so the cost of one operation cannot be measured.
	CountsLate bool
	// CountsConnections means that they count accepted connections.
	CountsConnections bool
	// WholeSeconds means that a TTL is a whole number of seconds.
	WholeSeconds bool
	// CapsTTL means that they cut a long TTL.
	CapsTTL bool
	// StartTLS means that TLS is negotiated within the service's own protocol, not by a handshake before it.
	StartTLS bool
	// Unasked means that the servers can be asked neither for a lock's holder nor for their number of requests.
	Unasked bool
	// Durable is the backend's key, with its value, with which servers keep their data across a restart; "": they
	// always do.
	Durable string
	// Terse means that they break connections without an error message: an error in a reply is about the request.
	Terse bool
	// Forgets means that a server that lost its data comes back without them and serves.
	Forgets bool
	// RefusesRenewals means that the fault refuse-writes, on all of them, makes them refuse renewals.
	RefusesRenewals bool
}

// Majority says which servers must agree before a lock is granted.
type Majority uint8

// The kinds of agreement.
const (
	NoMajority Majority = iota // one server decides
	AmongThem                  // a majority of all servers, by consensus among them
	ByClients                  // a majority of independent servers, each asked by the client
)
