// Package redis keeps what locks protect in a Redis server of its own.
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/servers"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

const name = "redis"

// Kind describes a Redis server with a hash for each lock.
func Kind() resource.Kind {
	return resource.Kind{
		Name: name,
		Doc:  "A separate Redis server: one hash per lock, read and written by one script that is also the guard, and a list of effects.",
		Guards: []resource.Guard{
			{Name: resource.GuardNone, Doc: "refuses nothing"},
			{
				Name: resource.GuardFence, Token: true,
				Doc: "the hash keeps the highest token; reads and writes with a lower one are refused",
			},
			{
				Name: resource.GuardCASVersion, Conditional: true,
				Doc: "refuses a write that is not based on the current value",
			},
			{
				Name: resource.GuardCASOwner,
				Doc:  "refuses a write unless its grant was the last to read, by the grant's random name",
			},
			{
				Name: resource.GuardCondition, Conditional: true, Writes: workloads.Sales,
				Doc: "the script compares, then counts: if sold + change <= stock",
			},
			{
				Name: resource.GuardDecr, Conditional: true, Writes: workloads.Sales,
				Doc: "counts first, as DECR does, and refuses if the counter exceeds the stock",
			},
		},
		Specs: func() []node.Spec {
			return []node.Spec{servers.Store(resource.StoreNode), resource.LedgerSpec(name)}
		},
		Dial: dial,
		Book: func() resource.Book { return &book{} },
	}
}

// effectsKey is the list of effects, and stockKey the stock of each lock. The hash of a lock is at its cellKey.
const (
	effectsKey = "effects"
	stockKey   = "stock"
)

func cellKey(lock string) string { return "cell:" + lock }

// accessScript contains guard, access and log entry, because Redis runs nothing beside a script. Its numbers are
// doubles, so tokens and versions are exact up to 2^53; values stay text.
var accessScript = goredis.NewScript(`
local op, guard, lock, holder, hold, token, value, from, owner, was = unpack(ARGV)
local h = redis.call("HMGET", KEYS[1], "value", "version", "seen", "owner")
local stands, version, seen = h[1] or "0", tonumber(h[2] or "1"), tonumber(h[3] or "0")
local ok = 1
if guard == "fence" then
	if tonumber(token) == 0 or tonumber(token) < seen then ok = 0 else redis.call("HSET", KEYS[1], "seen", token) end
elseif guard == "cas-version" and op == "write" then
	if tonumber(from) ~= version then ok = 0 end
elseif guard == "cas-owner" then
	if owner == "" then ok = 0
	elseif op == "read" then redis.call("HSET", KEYS[1], "owner", owner)
	elseif owner ~= h[4] then ok = 0 end
elseif op == "write" and (guard == "condition" or guard == "decr") then
	local change, sold = value - was, nil
	if guard == "decr" then sold = redis.call("HINCRBY", KEYS[1], "drawn", change) else sold = stands + change end
	if sold > tonumber(redis.call("GET", KEYS[3])) then ok = 0 else value = string.format("%.0f", stands + change) end
end
local tells = stands
if op == "write" then
	tells = value
	if ok == 1 then
		version = version + 1
		redis.call("HSET", KEYS[1], "value", value, "version", version)
		stands = value
	end
end
local t = redis.call("TIME")
redis.call("RPUSH", KEYS[2], table.concat({t[1] .. string.format("%06d", t[2]), lock, holder, hold, token, op, ok, tells}, " "))
return {tostring(ok), stands, tostring(version)}
`)

// link is a user's connection.
type link struct {
	guard  string
	client *goredis.Client
	seen   resource.Sightings
}

// newClient returns a client that sends each command once: a script sent twice could be applied twice.
func newClient(address, password string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: address, Password: password, MaxRetries: -1, PoolSize: 1,
		ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}

func dial(ctx context.Context, t resource.Target) (resource.Connection, error) {
	l := &link{guard: t.Guard, client: newClient(t.Address, t.Password), seen: resource.Sightings{}}
	if err := l.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis: %w", err), l.client.Close())
	}
	return l, nil
}

// Read reads the value that a lock protects.
func (l *link) Read(ctx context.Context, a resource.Access) (int64, error) {
	return l.do(ctx, a, "read", 0)
}

// Write writes that value.
func (l *link) Write(ctx context.Context, a resource.Access, value int64) error {
	_, err := l.do(ctx, a, "write", value)
	return err
}

func (l *link) do(ctx context.Context, a resource.Access, op string, value int64) (int64, error) {
	from := l.seen.Of(a)
	if op == "write" && from.Version == 0 && (l.guard == resource.GuardCondition || l.guard == resource.GuardDecr) {
		return 0, fmt.Errorf("%w: this grant has read nothing, so its change is unknown",
			resource.ErrRefused)
	}
	// EVAL rather than EVALSHA: a script unknown to the server would have to be sent again.
	got, err := accessScript.Eval(ctx, l.client, []string{cellKey(a.Lock), effectsKey, stockKey},
		op, l.guard, a.Lock, a.User.String(), a.Grant, uint64(a.Token), value, from.Version, a.Owner,
		from.Value).StringSlice()
	var said goredis.Error
	switch {
	case errors.As(err, &said):
		return 0, fmt.Errorf("%w: %w", resource.ErrRefused, err)
	case err != nil:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, fmt.Errorf("redis: %w", err)
	case len(got) != 3:
		return 0, fmt.Errorf("redis: the script answered %q", got)
	case got[0] != "1":
		return 0, resource.StoreRefused(l.guard, from.Version)
	}
	stands, err1 := strconv.ParseInt(got[1], 10, 64)
	version, err2 := strconv.ParseInt(got[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("redis: the script answered %q: %w", got, err)
	}
	l.seen[a.Lock] = resource.Sighting{Grant: a.Grant, Value: stands, Version: version}
	return stands, nil
}

// Close closes the connection.
func (l *link) Close() error { return l.client.Close() }

// book reads the list. Only the stock needs to be created: missing keys mean 0.
type book struct {
	client *goredis.Client
	locks  []string
}

func (b *book) Open(ctx context.Context, s *wire.Start) error {
	if b.client == nil {
		b.client, b.locks = newClient(s.Resource.Address, s.Resource.Password), s.Locks
	}
	if n, ok := s.Terms[workloads.TermStock]; ok {
		return b.client.Set(ctx, stockKey, n, 0).Err()
	}
	return b.client.Ping(ctx).Err()
}

func (b *book) Now(ctx context.Context) (int64, error) {
	t, err := b.client.Time(ctx).Result()
	return t.UnixNano(), err
}

func (b *book) Read(ctx context.Context) (log []resource.Entry, cells map[string]resource.Final, err error) {
	lines, err := b.client.LRange(ctx, effectsKey, 0, -1).Result()
	if err != nil {
		return nil, nil, err
	}
	for _, line := range lines {
		e, err := parseEntry(line)
		if err != nil {
			return nil, nil, err
		}
		log = append(log, e)
	}
	cells = map[string]resource.Final{}
	for _, name := range b.locks {
		var c struct {
			Value   int64 `redis:"value"`
			Version int64 `redis:"version"`
		}
		if err := b.client.HGetAll(ctx, cellKey(name)).Scan(&c); err != nil {
			return nil, nil, err
		}
		cells[name] = resource.Final{Value: c.Value, Applied: max(c.Version-1, 0)}
	}
	return log, cells, nil
}

// parseEntry parses a line that the script wrote.
func parseEntry(line string) (e resource.Entry, err error) {
	f := strings.Fields(line)
	if len(f) != 8 {
		return e, fmt.Errorf("line %q has %d words, want 8", line, len(f))
	}
	number := func(s string) (n int64) {
		n, failed := strconv.ParseInt(s, 10, 64)
		err = errors.Join(err, failed)
		return n
	}
	e = resource.Entry{
		At: number(f[0]) * 1000, Lock: f[1], User: f[2], Grant: uint32(number(f[3])), Token: uint64(number(f[4])),
		Write: f[5] == "write", OK: f[6] == "1", Value: number(f[7]),
	}
	return e, err
}

func (b *book) Close() {
	if b.client != nil {
		_ = b.client.Close() // the process ends
		b.client = nil
	}
}
