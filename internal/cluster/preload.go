package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/chaos"
)

// libraryDirs are where distributions keep libraries.
var libraryDirs = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
	"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
}

// faketimeFiles and mallocFiles are what is preloaded, below one of libraryDirs. The other malloc is loaded first where it is there:
// Debian's redis-server is linked with a jemalloc that asks for the time while libfaketime is being set up, and would hang.
var (
	faketimeFiles = []string{"faketime/libfaketimeMT.so.1", "libfaketimeMT.so.1"}
	mallocFiles   = []string{"libtcmalloc_minimal.so.4"}
)

// preload finds the libraries to be preloaded and returns the value of LD_PRELOAD.
func preload(there func(path string) (bool, error)) (string, error) {
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
		return "", chaos.Unavailable{What: string(chaos.Preload), Reason: "there is no libfaketimeMT.so.1"}
	}
	malloc, err := find(mallocFiles)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(malloc+":"+faketime, ":"), nil
}

// faketimeEnv is the environment of a process whose wall clock is told by a file. The monotonic clock stays the machine's: one that
// goes back freezes Redis and the JVM. The file is read once a second, because reading it each time costs a third of the throughput. Without
// the setting FORCE_MONOTONIC_FIX a JVM's timed waits last far too long: a ZooKeeper server took 11 s and more to serve, instead of 1 s.
func faketimeEnv(preload, file string) []string {
	return []string{
		"LD_PRELOAD=" + preload, "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1", "NO_FAKE_STAT=1", "FAKETIME_FORCE_MONOTONIC_FIX=0",
	}
}

// noFaketime is the content of the file while no fault stands.
const noFaketime = "+0\n"

// localPreparations are what the local provider can prepare.
var localPreparations = map[chaos.Preparation]func(context.Context, *localRun, *Node) (fitting, error){
	chaos.LoopDisk: loopDiskHere,
	chaos.Preload: func(_ context.Context, r *localRun, n *Node) (fitting, error) {
		libraries, err := preload(onThisMachine)
		if err != nil {
			return fitting{}, err
		}
		n.faketime = filepath.Join(r.dir, n.Name()+".faketime")
		return fitting{
			env:    faketimeEnv(libraries, n.faketime),
			before: func(context.Context) error { return os.WriteFile(n.faketime, []byte(noFaketime), 0o644) },
		}, nil
	},
}

func onThisMachine(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, nil //nolint:nilerr // what cannot be seen cannot be loaded
}

// Prepares looks for what the preparation needs on this machine.
func (l *local) Prepares(p chaos.Preparation, s Spec, _ string) error {
	if err := preparable(p, s); err != nil {
		return err
	}
	if p == chaos.Preload {
		_, err := preload(onThisMachine)
		return hint(err, "on this machine; run `.ci/setup faketime`, or install libfaketime and libtcmalloc-minimal4")
	}
	if p == chaos.LoopDisk {
		return disksHere()
	}
	return unknownPreparation(p)
}

// hint adds to the reason what would help.
func hint(err error, text string) error {
	if missing, ok := err.(chaos.Unavailable); ok { //nolint:errorlint // as it was made here
		missing.Reason += " " + text
		return missing
	}
	return err
}
