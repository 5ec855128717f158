package access

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// Keyspace is where locks are kept: below a prefix, or "" for the package's own names. All keys of one lock have the
// same text in braces, and so the same slot of Redis Cluster.
type Keyspace string

// Own begins lockquake's own keys.
const Own = "lockquake"

// Key returns the key of most locks.
func (k Keyspace) Key(name string) string {
	if k == "" {
		return Own + ":" + name
	}
	return string(k) + k.Slot(name)
}

// Slot returns the part of a lock's keys that determines their slot.
func (k Keyspace) Slot(name string) string {
	if k == "" {
		return "{" + k.Key(name) + "}"
	}
	return "{" + name + "}"
}

// Counter returns the key of a lock's token counter. It is in the slot of Key unless the name has a closing brace
// without an opening one before it.
func (k Keyspace) Counter(name string) string {
	if key := k.Key(name); hasTag(key) {
		return key + ":token"
	}
	return string(k) + k.Slot(name) + ":token"
}

// hasTag reports whether Redis Cluster takes the slot of a key from a part in braces: from the first opening brace to
// the next closing one, if there is anything between them.
func hasTag(key string) bool {
	_, after, open := strings.Cut(key, "{")
	return open && strings.IndexByte(after, '}') > 0
}

// RueidisPrefix begins the keys of rueidislock, which gets Slot as the lock's name.
func (k Keyspace) RueidisPrefix() string {
	if k == "" {
		return Own
	}
	return string(k)
}

// Keys returns the possible keys of a lock: that of most locks, and that of rueidislock, which appends the number of
// the key (there is one, 0).
func (k Keyspace) Keys(name string) []string {
	return []string{k.Key(name), k.RueidisPrefix() + ":0:" + k.Slot(name)}
}

// Anywhere returns Keys, and the keys of foreign clients, whose key is the lock's name or has rueidislock's default
// prefix. Those are in other slots of a cluster.
func (k Keyspace) Anywhere(name string) []string {
	if k == "" {
		return append(k.Keys(name), name, "rueidislock:0:"+name)
	}
	return k.Keys(name) // on an attached service other keys belong to other users
}

// Ready returns the key that Ready writes; no lock has a name like it.
func (k Keyspace) Ready() string {
	if k == "" {
		return Own + ":ready"
	}
	return string(k) + "ready"
}

// ReadyKeys is how many keys are tried until every primary of a cluster has taken a write at a key in its slots.
const ReadyKeys = 1000

// ReadyAt returns the nth of these keys.
func (k Keyspace) ReadyAt(n int) string { return k.Ready() + strconv.Itoa(n) }

// AllReady returns all keys that Ready may have written.
func (k Keyspace) AllReady() []string {
	out := []string{k.Ready()}
	for n := range ReadyKeys {
		out = append(out, k.ReadyAt(n))
	}
	return out
}

// Probe returns a key in the slot of a lock's keys.
func (k Keyspace) Probe(name string) string {
	if k == "" {
		return Own + ":probe:" + k.Slot(name)
	}
	return string(k) + "probe:" + k.Slot(name)
}

// Printable returns a random value in the form of grants and facts.
func Printable(value string) string { return hex.EncodeToString([]byte(value)) }
