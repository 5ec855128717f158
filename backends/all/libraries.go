package all

import (
	"maps"
	"runtime/debug"
	"slices"
)

// folders names the folder of each backend that shares one with others; the others live in one of their own name.
var folders = map[string]string{"sentinel": "redis", "rediscluster": "redis", "redlock": "redis"}

// Folder returns the folder within backends/ that a backend's code is in.
func Folder(backend string) string {
	if f, ok := folders[backend]; ok {
		return f
	}
	return backend
}

// builtIn are the modules of the server that this program has within it, and of what restores its data.
var builtIn = []string{"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdutl/v3"}

// ofClients names, by folder, the modules with which a client speaks to the service, and by the name of a lock those of one that is
// made of others.
var ofClients = map[string][]string{
	"redis":              {"github.com/redis/go-redis/v9"},
	"redislock":          {"github.com/redis/go-redis/v9", "github.com/bsm/redislock"},
	"redsync":            {"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4"},
	"rueidislock":        {"github.com/redis/rueidis", "github.com/redis/rueidis/rueidislock"},
	"rueidis-set-px-lua": {"github.com/redis/rueidis"},
	"etcd":               {"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3"},
	"zookeeper":          {"github.com/go-zookeeper/zk"},
	"postgres":           {"github.com/jackc/pgx/v5"},
}

// OfClient names the modules that a client of a lock is made of.
func OfClient(backend, lock string) []string {
	if list, ok := ofClients[lock]; ok {
		return list
	}
	return ofClients[Folder(backend)]
}

// Libraries returns the modules that a backend's lock is made of, with the versions that this program was built with.
func Libraries(backend, lock string) map[string]string { return builtWith(OfClient(backend, lock)) }

// Built returns the modules of all locks and of the server within, with the versions that this program was built with.
func Built() map[string]string {
	return builtWith(append(slices.Concat(slices.Collect(maps.Values(ofClients))...), builtIn...))
}

func builtWith(names []string) map[string]string {
	out := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	built := map[string]string{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		built[m.Path] = m.Version
	}
	for _, m := range names {
		if v := built[m]; v != "" {
			out[m] = v
		}
	}
	return out
}
