// Package preload finds the libraries that have a program ask libfaketime for the time.
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

// faketimeFiles and mallocFiles are what is preloaded, below one of libraryDirs. The other malloc is loaded first where
// it is there: Debian's redis-server is linked with a jemalloc that asks for the time while libfaketime is being set
// up, and would hang.
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

// Env is the environment of a process whose wall clock is told by a file. The monotonic clock stays the machine's: one
// that goes back freezes Redis and the JVM. The file is read once a second, because reading it each time costs a third
// of the throughput. Without the setting FORCE_MONOTONIC_FIX a JVM's timed waits last far too long: a ZooKeeper server
// took 11 s and more to serve, instead of 1 s.
func Env(preload, file string) []string {
	return []string{
		"LD_PRELOAD=" + preload, "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_CACHE_DURATION=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1", "NO_FAKE_STAT=1", "FAKETIME_FORCE_MONOTONIC_FIX=0",
	}
}

// NoShift is the content of the file while no fault stands.
const NoShift = "+0\n"

// File is where a local run keeps the file that tells a node's wall clock.
func File(runDir, node string) string { return filepath.Join(runDir, node+".faketime") }

// Here reports whether a file is there.
func Here(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, nil //nolint:nilerr // what cannot be seen cannot be loaded
}
