// Package node runs an etcd server within lockquake's own binary. It stands apart from the backend so that only the
// command imports the server.
package node

import (
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// ErrNoDataDir says that the flags name no data directory. The server would take the working directory, which a
// container made from nothing may not let it write to.
var ErrNoDataDir = errors.New("node etcd: --data-dir is missing")

// RunNode runs the real etcd server with args: the flags of etcd itself, and BumpFlag. It does not return once the
// server was started: the process ends with the server, which closes in order on SIGTERM and SIGINT, also as the first
// process of a container.
func RunNode(args []string) error {
	flags := newFlags(args)
	if _, ok := flags.value("data-dir"); !ok {
		return ErrNoDataDir
	}
	by, asked := flags.take(BumpFlag)
	if asked {
		if err := flags.bump(by); err != nil {
			return err
		}
	}
	etcdmain.Main(append([]string{"etcd"}, flags.args...))
	return nil
}

// flags is a command line of etcd, whose flags are -name value, --name value, or the same with an equals sign.
type flags struct{ args []string }

func newFlags(args []string) *flags { return &flags{slices.Clone(args)} }

// find returns where a flag stands, how many words it has, and its value.
func (f *flags) find(name string) (at, words int, value string) {
	for i, a := range f.args {
		key, value, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch {
		case !strings.HasPrefix(a, "-") || key != name:
		case joined:
			return i, 1, value
		case i+1 < len(f.args):
			return i, 2, f.args[i+1]
		}
	}
	return -1, 0, ""
}

func (f *flags) value(name string) (string, bool) {
	at, _, value := f.find(name)
	return value, at >= 0
}

// take returns the value of a flag and removes the flag.
func (f *flags) take(name string) (string, bool) {
	at, words, value := f.find(name)
	if at < 0 {
		return "", false
	}
	f.args = slices.Delete(f.args, at, at+words)
	return value, true
}
