package postgres

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/topology"
)

// keyspace is where locks are kept. A prefix has its own schema and its own class of advisory locks; "" means the
// package's own tables and all 64 bits of the advisory locks.
type keyspace string

// schema returns the name of the schema; "": the server's default.
func (k keyspace) schema() string { return strings.TrimSuffix(string(k), "/") }

// quoted returns the schema, quoted for a statement.
func (k keyspace) quoted() string { return pgx.Identifier{k.schema()}.Sanitize() }

// class returns the first of the two integers of an advisory lock's key.
func (k keyspace) class() int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k))
	return int32(h.Sum32())
}

// advisory returns the key of the lock named $1, in the form of the server's functions. With a class, 32 bits are
// left for the name.
func (k keyspace) advisory() string {
	if k == "" {
		return `hashtextextended($1, 0)`
	}
	return fmt.Sprintf(`%d, hashtext($1)`, k.class())
}

// entry returns the condition for the entry of the lock named $1 in pg_locks, which shows the two halves of a key
// separately.
func (k keyspace) entry() string {
	if k == "" {
		return `locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)`
	}
	return k.inClass() + ` AND objid::bigint = hashtext($1)::bigint & 4294967295`
}

// inClass returns the condition for the entries of all locks of the class.
func (k keyspace) inClass() string {
	return fmt.Sprintf(`locktype = 'advisory' AND objsubid = 2 AND classid::bigint = %d`, uint32(k.class()))
}

// longestSchema is the server's limit for names minus the length of a run's id.
const longestSchema = 50

// checkPrefix rejects a prefix that cannot begin the name of a schema.
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
