package redis

// keyspace is where locks are kept: below a prefix, or "" for the package's own names. All keys of one lock are in one slot of Redis
// Cluster, which is that of what stands in braces.
type keyspace string

// own is what the package's own keys begin with.
const own = "lockquake"

// key is where most locks are kept.
func (k keyspace) key(name string) string {
	if k == "" {
		return own + ":" + name
	}
	return string(k) + k.slot(name)
}

// slot is the part of a lock's keys that decides about their slot.
func (k keyspace) slot(name string) string {
	if k == "" {
		return "{" + k.key(name) + "}"
	}
	return "{" + name + "}"
}

// counter is where the tokens of a lock come from.
func (k keyspace) counter(name string) string { return string(k) + k.slot(name) + ":token" }

// rueidisPrefix begins the keys of rueidislock, which is told the slot as the lock's name.
func (k keyspace) rueidisPrefix() string {
	if k == "" {
		return own
	}
	return string(k)
}

// keys lists where a lock may be kept: by most locks, and by rueidislock, which adds the number of the key (there is one, 0).
func (k keyspace) keys(name string) []string {
	return []string{k.key(name), k.rueidisPrefix() + ":0:" + k.slot(name)}
}

// ready is written by Ready; no lock has a name like it.
func (k keyspace) ready() string {
	if k == "" {
		return own + ":ready"
	}
	return string(k) + "ready"
}

// probe is a key in the slot of a lock's.
func (k keyspace) probe(name string) string {
	if k == "" {
		return own + ":probe:" + k.slot(name)
	}
	return string(k) + "probe:" + k.slot(name)
}
