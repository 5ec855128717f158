package all

import (
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/listed"
)

// Folder returns the folder within backends/ that contains a backend's code.
func Folder(b listed.Backend) string {
	// Such as "github.com/lockquake/lockquake/backends/redis.newFive".
	made := runtime.FuncForPC(reflect.ValueOf(b.New).Pointer()).Name()
	_, in, _ := strings.Cut(made, "/backends/")
	return in[:strings.IndexAny(in, "./")]
}

// OfClient returns the modules that make up a client of a lock.
func OfClient(backend, lock string) []string {
	for _, b := range All() {
		if b.Name != backend {
			continue
		}
		if l, ok := b.Lock(lock); ok && len(l.Modules) > 0 {
			return l.Modules
		}
		return b.Modules
	}
	return nil
}

// Libraries returns the modules that make up a backend's lock, with the versions that this program was built with.
func Libraries(backend, lock string) map[string]string { return builtWith(OfClient(backend, lock)) }

// Built returns the modules of all locks and of the built-in servers, with the versions that this program was built
// with.
func Built() map[string]string {
	var names []string
	for _, b := range All() {
		names = slices.Concat(names, b.Modules, b.BuiltIn)
		for _, l := range b.Locks {
			names = append(names, l.Modules...)
		}
	}
	return builtWith(names)
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
