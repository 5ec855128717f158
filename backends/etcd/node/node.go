// Package node runs an etcd server within lockquake's own binary. It is separate from the backend so that only the
// command imports the server.
package node

import (
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// ErrNoDataDir means that the flags name no data directory. The server would use the working directory, which may not
// be writable in a container from scratch.
var ErrNoDataDir = errors.New("node etcd: --data-dir is missing")

// RunNode runs the real etcd server with args: etcd's own flags, and BumpFlag. Once the server is started it does not
// return: the process ends with the server. The server closes gracefully on SIGTERM and SIGINT, also as the first
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

// flags is an etcd command line. Its flags are -name value, --name value, or the same with an equals sign.
type flags struct{ args []string }

func newFlags(args []string) *flags { return &flags{slices.Clone(args)} }

// find returns a flag's position, its number of words, and its value.
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

// take removes a flag and returns its value.
func (f *flags) take(name string) (string, bool) {
	at, words, value := f.find(name)
	if at < 0 {
		return "", false
	}
	f.args = slices.Delete(f.args, at, at+words)
	return value, true
}
