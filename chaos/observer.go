package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Observer answers questions about the service, independently of the faults.
type Observer interface {
	// Facts returns the names that Ask knows, each with one line of explanation. "serves" is always among them.
	Facts() map[string]string
	// Ask asks one node, by name, for one fact. Booleans are "true" and "false".
	Ask(ctx context.Context, node, fact string) (string, error)
}

// FactServes is the fact that every Observer knows: the node answers a request of its own protocol.
const FactServes = "serves"

// FactAnswers is the fact that the node answers by itself, even without the peers that it needs in order to serve. Not
// every Observer knows it.
const FactAnswers = "answers"

// FactRole is the role of a node, by which the targets leader and followers are found. A leader answers leader, primary
// or master. A node that answers sentinel or none is neither. Any other answer is that of a follower. A service with
// several leaders, each for some locks, also knows "role:LOCK", which leader(LOCK) and followers(LOCK) use.
const FactRole = "role"

// FactEpoch is the number of the term that a node is in, which grows with each new leader: Raft's term, the epochs of
// ZooKeeper, of Redis Cluster and of the Sentinels. Not every Observer knows it.
const FactEpoch = "epoch"

// FactLag is the replication lag of a leader: a lower bound of the bytes it had written that its most advanced follower
// had not received. Not every Observer knows it.
const FactLag = "replication-lag"

// FactClock is a node's wall clock in RFC 3339. FactMonotonic is its monotonic clock in nanoseconds, from an arbitrary
// start. A space and how it was read may follow either.
const (
	FactClock     = "clock"
	FactMonotonic = "monotonic"
)

// FactStamps is the clock with which a client timestamps its events, in nanoseconds. It starts where FactMonotonic
// does. Servers have none.
const FactStamps = "stamps"

// The facts about a server's disk. An Observer knows those that its service reports.
const (
	// FactSyncing is "true" while the server waits for a sync of its log.
	FactSyncing = "syncing"
	// FactSyncTime is the total time since its start that the server has spent syncing its log, in milliseconds.
	FactSyncTime = "sync-ms"
	// FactWrites is "true" when the server accepted our write to a key that no lock uses. Asking for it makes the
	// write.
	FactWrites = "writes"
	// FactLastWrite is the value at the key that FactWrites writes; each write changes it.
	FactLastWrite = "last-write"
)

// Leaderless is an Observer that knows beforehand whether the target leader can be a single node.
type Leaderless interface {
	// Leaderless returns why no single server leads a lock or, for the lock "", all locks. It returns "" if one may.
	Leaderless(lock string) string
}

// Sharder is an Observer of a service that shards its locks over several leaders.
type Sharder interface {
	// Leads returns which of the locks the node leads now, according to that node.
	Leads(ctx context.Context, node string, locks []string) ([]string, error)
}

// Promoter is an Observer of a service that supports a planned handover of leadership while all nodes are healthy.
type Promoter interface {
	// Promotes returns nil if the service can do it, else an Unavailable error. It is called before anything starts.
	Promotes() error
	// Promote starts the handover: away from the node if it leads, to the node if it follows. It need not wait for the
	// effect.
	Promote(ctx context.Context, node string) (Promotion, error)
	// Settle undoes the temporary settings of a handover, once the new leader is known or there is none. It may be
	// called again.
	Settle(ctx context.Context, p Promotion) error
}

// WriteRefuser is an Observer of a service whose servers can be made to refuse writes while they stay up.
type WriteRefuser interface {
	// RefuseWrites makes a server refuse writes from now on and returns the setting it used. allow, never nil, reverts
	// it.
	RefuseWrites(ctx context.Context, node string) (how string, allow func(context.Context) error, err error)
}

// Evictor is an Observer of a service that drops keys, or refuses writes, when its memory is full.
type Evictor interface {
	// FillMemory limits a server's memory and fills it. empty, never nil, reverts both.
	FillMemory(ctx context.Context, node, policy string) (seen Filled, empty func(context.Context) error, err error)
}

// Filled is what a server did when its memory was full.
type Filled struct {
	How     string // what was set
	Evicted int64  // keys
	Refused string // its error for a refused write; "": it refused none
}

// Compactor is an Observer of a service that keeps a history of its keys and can compact it.
type Compactor interface {
	// Compact drops the history before the current revision, which it returns.
	Compact(ctx context.Context, node string) (revision int64, err error)
	// Forgotten asks a server for a revision and returns the error with which it refuses it; "" if it still has it.
	Forgotten(ctx context.Context, node string, revision int64) (words string, err error)
}

// Promotion is a requested handover.
type Promotion struct {
	From, To string // To is "" where the service chooses
	How      string // the request and its recipient, for the receipt
}

// ClockReading is one reading of a node's wall clock, which showed Shown at some moment between From and To on this
// machine's clocks.
type ClockReading struct {
	Shown            time.Time
	Whole            bool   // Shown is in whole seconds
	How              string // how it was read; "": over the service's own protocol
	From, To         time.Time
	FromMono, ToMono int64 // the same moments on CLOCK_MONOTONIC, ns
}

// Ahead returns bounds of how far the node's clock was ahead of this machine's.
func (r ClockReading) Ahead() (low, high time.Duration) {
	return r.Shown.Sub(r.To), r.Shown.Sub(r.From)
}

// staleClock is how much older than its question an answer may be: some servers read the clock once per round of their
// event loop.
const staleClock = 5 * time.Millisecond

// ReadClock reads a node's wall clock once, by FactClock.
func ReadClock(ctx context.Context, service Observer, node string) (r ClockReading, err error) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	r.From, r.FromMono = clock.Wall().Add(-staleClock), clock.Now()-int64(staleClock)
	answer, err := service.Ask(ctx, node, FactClock)
	r.To, r.ToMono = clock.Wall(), clock.Now()
	if err != nil {
		return ClockReading{}, err
	}
	answer, r.How, _ = strings.Cut(answer, " ")
	r.Whole = !strings.Contains(answer, ".")
	r.Shown, err = time.Parse(time.RFC3339Nano, answer)
	return r, err
}

// ClockAhead reads a node's wall clock once, by FactClock, and returns bounds of how far it is ahead of this machine's.
// The bounds include the resolution of the answer.
func ClockAhead(ctx context.Context, service Observer, node string) (low, high time.Duration, err error) {
	r, err := ReadClock(ctx, service, node)
	if err != nil {
		return 0, 0, err
	}
	grain := time.Millisecond
	if r.Whole {
		grain = time.Second
	}
	low, high = r.Ahead()
	return low, high + grain, nil
}
