package postgres

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
)

// keyspace is where locks are kept: in a schema and a class of advisory locks of its own, both made of a prefix; or ""
// for the package's own tables and all 64 bits of the advisory locks.
type keyspace string

// schema is the name of the schema; "": the one that the server takes by itself.
func (k keyspace) schema() string { return strings.TrimSuffix(string(k), "/") }

// quoted is the schema as a statement names it.
func (k keyspace) quoted() string { return pgx.Identifier{k.schema()}.Sanitize() }

// class is the first of the two integers that are the key of an advisory lock.
func (k keyspace) class() int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k))
	return int32(h.Sum32())
}

// advisory is the key of the lock named $1, as the server's functions take it. With a class, what is left of the name
// is 32 bits.
func (k keyspace) advisory() string {
	if k == "" {
		return `hashtextextended($1, 0)`
	}
	return fmt.Sprintf(`%d, hashtext($1)`, k.class())
}

// entry finds the entry of the lock named $1 in pg_locks, which shows the two halves of a key apart.
func (k keyspace) entry() string {
	if k == "" {
		return `locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)`
	}
	return k.inClass() + ` AND objid::bigint = hashtext($1)::bigint & 4294967295`
}

// inClass finds the entries of all locks of the class.
func (k keyspace) inClass() string {
	return fmt.Sprintf(`locktype = 'advisory' AND objsubid = 2 AND classid::bigint = %d`, uint32(k.class()))
}

// longestSchema is what is left of the server's limit for names when a run's id was added.
const longestSchema = 50

// checkPrefix refuses what could not begin the name of a schema.
func checkPrefix(c topology.Common) error {
	if c.Attached == nil {
		return nil
	}
	under := c.Attached.Under
	if len(under) > longestSchema || strings.HasPrefix(under, "pg_") ||
		strings.Trim(under, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return fmt.Errorf("prefix is %q; it begins the name of a schema, and must be of a-z, 0-9 and _, such as bench_",
			under)
	}
	return nil
}
