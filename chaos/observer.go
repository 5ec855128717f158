package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Observer answers questions about the service from outside any fault.
type Observer interface {
	// Facts lists the names that Ask knows, each with one line of explanation. "serves" is always among them.
	Facts() map[string]string
	// Ask asks one node (by name) for one fact. Truths are "true" and "false".
	Ask(ctx context.Context, node, fact string) (string, error)
}

// FactServes is the fact that every Observer knows: the node answers a request of its own protocol.
const FactServes = "serves"

// FactAnswers is the fact that the node answers by itself, with or without the others that it needs in order to serve.
// Not every Observer knows it.
const FactAnswers = "answers"

// FactRole is the fact by which the targets leader and followers are found. A leader answers leader, primary or master.
// A node that answers sentinel or none is neither, and one with any other answer is a follower. A service with a leader
// for each part of its locks also knows "role:LOCK", which leader(LOCK) and followers(LOCK) ask.
const FactRole = "role"

// FactEpoch is the fact that tells the number of the term that a node lives in, which grows when another takes the
// lead: Raft's term, the epochs of ZooKeeper, of Redis Cluster and of the Sentinels. Not every Observer knows it.
const FactEpoch = "epoch"

// FactLag is the fact that tells the replication lag of a node that leads: how many bytes of what it had written the
// best of its followers had not received, at least. Not every Observer knows it.
const FactLag = "replication-lag"

// FactClock is the fact that tells a node's wall clock, in RFC 3339; FactMonotonic tells its monotonic clock in
// nanoseconds, from whatever start. Either may be followed by a space and by how it came to be known.
const (
	FactClock     = "clock"
	FactMonotonic = "monotonic"
)

// FactStamps is the fact that tells the clock by which a client stamps its events, in nanoseconds. It counts from the
// same time as FactMonotonic does. Servers have none.
const FactStamps = "stamps"

// The facts by which a server tells of its disk. An Observer knows those that its service can tell.
const (
	// FactSyncing is "true" while the server waits for a sync of its log.
	FactSyncing = "syncing"
	// FactSyncTime is the time that the server has spent in syncs of its log since it started, in milliseconds.
	FactSyncTime = "sync-ms"
	// FactWrites is "true" when the server took a write of ours, at a key that no lock has. Asking for it makes the
	// write.
	FactWrites = "writes"
	// FactLastWrite is what the server has at the key that FactWrites writes: another value after each.
	FactLastWrite = "last-write"
)

// Leaderless is an Observer of a service that knows beforehand that the target leader finds no node, or several.
type Leaderless interface {
	// Leaderless says why no single server leads, of a lock or, with "", of all of them; "" where one may.
	Leaderless(lock string) string
}

// Sharder is an Observer of a service that spreads its locks over several leaders.
type Sharder interface {
	// Leads returns which of the locks the node leads now, by its own account.
	Leads(ctx context.Context, node string, locks []string) ([]string, error)
}

// Promoter is an Observer of a service that can hand its lead over in order, while all its nodes are well.
type Promoter interface {
	// Promotes returns nil where the service can do it, else an Unavailable with the reason. It is asked before
	// anything starts.
	Promotes() error
	// Promote has the service begin: away from the node where it leads, to it where it follows. It need not wait for
	// the effect.
	Promote(ctx context.Context, node string) (Promotion, error)
	// Settle takes back what a handover needs only while it goes on, when the new leader is known or nobody leads. It
	// may be called again.
	Settle(ctx context.Context, p Promotion) error
}

// WriteRefuser is an Observer of a service whose servers can be had to refuse writes while they live.
type WriteRefuser interface {
	// RefuseWrites has a server refuse writes from now on, and says by which setting. allow, never nil, sets it back.
	RefuseWrites(ctx context.Context, node string) (how string, allow func(context.Context) error, err error)
}

// Evictor is an Observer of a service that drops keys, or refuses writes, when its memory is full.
type Evictor interface {
	// FillMemory limits a server's memory, and fills it. empty, never nil, takes that back.
	FillMemory(ctx context.Context, node, policy string) (seen Filled, empty func(context.Context) error, err error)
}

// Filled is what a server did when its memory was full.
type Filled struct {
	How     string // what was set
	Evicted int64  // keys
	Refused string // in what words it refused a write; "": it refused none
}

// Compactor is an Observer of a service that keeps a history of its keys, and can be had to forget it.
type Compactor interface {
	// Compact forgets what was before the present revision, which it returns.
	Compact(ctx context.Context, node string) (revision int64, err error)
	// Forgotten asks a server for a revision, and returns in what words it refuses it; "" where it still has it.
	Forgotten(ctx context.Context, node string, revision int64) (words string, err error)
}

// Promotion is a handover as it was asked for.
type Promotion struct {
	From, To string // To is "" where the service chooses
	How      string // what was asked of whom, for a receipt
}

// ClockReading is one reading of a node's wall clock: it showed Shown at some moment between From and To of this
// machine's clocks.
type ClockReading struct {
	Shown            time.Time
	Whole            bool   // Shown is in whole seconds
	How              string // it came to be known; "" over the service's own protocol
	From, To         time.Time
	FromMono, ToMono int64 // the same moments on CLOCK_MONOTONIC, ns
}

// Ahead bounds by how much the node's clock was ahead of this machine's.
func (r ClockReading) Ahead() (low, high time.Duration) {
	return r.Shown.Sub(r.To), r.Shown.Sub(r.From)
}

// staleClock is how much older than its question an answer may be: servers that keep one time for a round of their
// event loop.
const staleClock = 5 * time.Millisecond

// ReadClock asks a node for its wall clock once, by FactClock.
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

// ClockAhead asks a node for its wall clock once, by FactClock. By how much it is ahead of this machine's lies between
// the two; the answer's own grain is within them.
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
