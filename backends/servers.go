package backends

// Servers says how a service keeps locks on its servers, and what these tell of themselves. Nothing else knows a
// service by its name.
type Servers struct {
	// Majority says which servers must agree on a grant.
	Majority Majority
	// Standby says that another server takes over from one that is lost, and may not know all grants.
	Standby bool
	// CountsLate says that they count requests some time later: what one operation cost cannot be told.
	CountsLate bool
	// CountsConnections says that they count the connections that they take.
	CountsConnections bool
	// WholeSeconds says that a TTL is a whole number of seconds.
	WholeSeconds bool
	// StartTLS says that TLS is agreed upon in the service's own protocol, and not by a handshake that comes first.
	StartTLS bool
	// Unasked says that nobody can ask them who has a lock, nor how much they were asked for.
	Unasked bool
	// Durable is the backend's key, with its value, under which servers have their data again after a restart; "": they
	// always do.
	Durable string
	// Terse says that they break connections without a word: an error that they answer with is about the request.
	Terse bool
	// Forgets says that a server whose data are lost comes back without them and serves.
	Forgets bool
}

// Majority says which servers must agree before a lock is granted.
type Majority uint8

// The kinds of agreement.
const (
	NoMajority Majority = iota // one server decides
	AmongThem                  // a majority of all servers, as they agree among themselves
	ByClients                  // a majority of servers that know nothing of each other, each asked by the client
)
