// Package node runs an etcd server within lockquake's own binary. It stands apart from the backend so that only the
// command imports the server.
package node

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// ErrNoDataDir says that the flags name no data directory. The server would take the working directory, which a
// container made from nothing may not let it write to.
var ErrNoDataDir = errors.New("node etcd: --data-dir is missing")

// RunNode runs the real etcd server with args, the flags of etcd itself. It does not return once the server was started: the process
// ends with the server, which closes in order on SIGTERM and SIGINT, also as the first process of a container.
func RunNode(args []string) error {
	if !hasDataDir(args) {
		return ErrNoDataDir
	}
	etcdmain.Main(append([]string{"etcd"}, args...))
	return nil
}

func hasDataDir(args []string) bool {
	for _, a := range args {
		if name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "="); strings.HasPrefix(a, "-") && name == "data-dir" {
			return true
		}
	}
	return false
}
