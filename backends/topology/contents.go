package topology

import "context"

// ContentCounter is a Service that counts what it stores. The counts find a lock that leaves something behind for
// each grant.
type ContentCounter interface {
	// Contents returns how many things the whole service stores, by kind in the plural ("keys"). The harness's own
	// count too.
	Contents(ctx context.Context) (map[string]Content, error)
}

// Content counts the things of one kind that a service stores.
type Content struct {
	N int64
	// PerUser and PerLock bound what a correct lock keeps for each user and each lock name, however many grants there
	// were.
	PerUser, PerLock int64
	// Attached means that a thing ends with the client that made it, such as a session. It is counted while the
	// clients live. Other things are counted after all clients have ended and the TTL is over.
	Attached bool
}
