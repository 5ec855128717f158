package topology

import "context"

// ContentCounter is a Service that counts what it keeps: a lock that leaves something behind for each grant is found by
// it.
type ContentCounter interface {
	// Contents returns how many things the service keeps as a whole, by kind, in the plural ("keys"). The harness's own
	// count too.
	Contents(ctx context.Context) (map[string]Content, error)
}

// Content is the things of one kind that a service keeps.
type Content struct {
	N int64
	// PerUser and PerLock bound what a right lock keeps for each user and each lock name, however many grants there
	// were.
	PerUser, PerLock int64
	// Attached says that a thing ends with the client that made it, such as a session. It is counted while the clients
	// live; the others are counted when all clients have ended and the TTL is over.
	Attached bool
}
