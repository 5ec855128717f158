// Package preload finds the libraries that make a program ask libfaketime for the time.
package preload

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
)

// libraryDirs are where distributions keep libraries.
var libraryDirs = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
	"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
}

// faketimeFiles and mallocFiles are the libraries to preload, below one of libraryDirs. The other malloc is loaded
// first if it exists: Debian's redis-server is linked with a jemalloc that asks for the time during libfaketime's
// setup, and would hang.
var (
	faketimeFiles = []string{"faketime/libfaketimeMT.so.1", "libfaketimeMT.so.1"}
	mallocFiles   = []string{"libtcmalloc_minimal.so.4"}
)

// Find finds the libraries to be preloaded and returns the value of LD_PRELOAD.
func Find(there func(path string) (bool, error)) (string, error) {
	find := func(names []string) (string, error) {
		for _, dir := range libraryDirs {
			for _, name := range names {
				path := dir + "/" + name
				if ok, err := there(path); ok || err != nil {
					return path, err
				}
			}
		}
		return "", nil
	}
	faketime, err := find(faketimeFiles)
	if err != nil {
		return "", err
	}
	if faketime == "" {
		return "", chaos.Unavailable{What: string(wall.Preload), Reason: "there is no libfaketimeMT.so.1"}
	}
	malloc, err := find(mallocFiles)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(malloc+":"+faketime, ":"), nil
}

// Env returns the environment of a process whose wall clock comes from a libfaketime file. The monotonic clock stays
// the machine's: if it went back, Redis and the JVM would freeze. The file is read once a second, because reading it
// each time costs a third of the throughput. Without FORCE_MONOTONIC_FIX a JVM's timed waits last far too long: a
// ZooKeeper server took 11 s and more to serve, instead of 1 s.
func Env(preload, file string) []string {
	return []string{
		"LD_PRELOAD=" + preload, "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_CACHE_DURATION=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1", "NO_FAKE_STAT=1", "FAKETIME_FORCE_MONOTONIC_FIX=0",
	}
}

// NoShift is the content of the file without an active fault.
const NoShift = "+0\n"

// File returns the path of a node's libfaketime file in a local run.
func File(runDir, node string) string { return filepath.Join(runDir, node+".faketime") }

// Here reports whether a file exists.
func Here(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, nil //nolint:nilerr // an unreadable file cannot be loaded
}
