package access

import (
	"encoding/hex"
	"strconv"
)

// Keyspace is where locks are kept: below a prefix, or "" for the package's own names. All keys of one lock are in one
// slot of Redis Cluster, which is that of what stands in braces.
type Keyspace string

// Own is what lockquake's own keys begin with.
const Own = "lockquake"

// Key is where most locks are kept.
func (k Keyspace) Key(name string) string {
	if k == "" {
		return Own + ":" + name
	}
	return string(k) + k.Slot(name)
}

// Slot is the part of a lock's keys that decides about their slot.
func (k Keyspace) Slot(name string) string {
	if k == "" {
		return "{" + k.Key(name) + "}"
	}
	return "{" + name + "}"
}

// Counter is where the tokens of a lock come from.
func (k Keyspace) Counter(name string) string { return string(k) + k.Slot(name) + ":token" }

// RueidisPrefix begins the keys of rueidislock, which is told the slot as the lock's name.
func (k Keyspace) RueidisPrefix() string {
	if k == "" {
		return Own
	}
	return string(k)
}

// Keys lists where a lock may be kept: by most locks, and by rueidislock, which adds the number of the key (there is
// one, 0).
func (k Keyspace) Keys(name string) []string {
	return []string{k.Key(name), k.RueidisPrefix() + ":0:" + k.Slot(name)}
}

// Anywhere lists the keys, and where a client of others keeps a lock whose key is its name, or has rueidislock's own
// prefix. Those are in other slots of a cluster.
func (k Keyspace) Anywhere(name string) []string {
	if k == "" {
		return append(k.Keys(name), name, "rueidislock:0:"+name)
	}
	return k.Keys(name) // on an attached service the rest is other people's
}

// Ready is written by Ready; no lock has a name like it.
func (k Keyspace) Ready() string {
	if k == "" {
		return Own + ":ready"
	}
	return string(k) + "ready"
}

// ReadyKeys is how many keys are tried until every primary of a cluster has taken a write at one of its own.
const ReadyKeys = 1000

// ReadyAt is the key that is tried as that number.
func (k Keyspace) ReadyAt(n int) string { return k.Ready() + strconv.Itoa(n) }

// AllReady lists what Ready may have written.
func (k Keyspace) AllReady() []string {
	out := []string{k.Ready()}
	for n := range ReadyKeys {
		out = append(out, k.ReadyAt(n))
	}
	return out
}

// Probe is a key in the slot of a lock's.
func (k Keyspace) Probe(name string) string {
	if k == "" {
		return Own + ":probe:" + k.Slot(name)
	}
	return string(k) + "probe:" + k.Slot(name)
}

// Printable is the random value as grants and facts show it.
func Printable(value string) string { return hex.EncodeToString([]byte(value)) }
