// Package executable finds the programs of nodes on this machine: lockquake's own binary, and others on PATH.
package executable

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// SelfVariable is the environment variable that names lockquake's own binary, as nodes run it.
const SelfVariable = "LOCKQUAKE_BIN"

// Other returns the path of the program that SelfVariable names, if it is not the running program.
func Other() string {
	named := os.Getenv(SelfVariable)
	if named == "" {
		return ""
	}
	own, err := os.Executable()
	if err == nil && sameContent(own, named) {
		return ""
	}
	if path, err := filepath.Abs(named); err == nil {
		return path
	}
	return named
}

// sameContent reports whether two files are readable and equal.
func sameContent(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX != nil || errY != nil || x.Size() != y.Size() {
		return false
	}
	if os.SameFile(x, y) {
		return true
	}
	hashX, errX := Hash(a)
	hashY, errY := Hash(b)
	return errX == nil && errY == nil && hashX == hashY
}

// Self returns the path of lockquake's own binary: the one named, else LOCKQUAKE_BIN, else the running program,
// which must not be a test binary.
func Self(named string) (string, error) {
	path := named
	if path == "" {
		path = os.Getenv(SelfVariable)
	}
	if path == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the running program: %w", err)
		}
		if strings.HasSuffix(exe, ".test") {
			return "", chaos.Unavailable{
				What:   "lockquake's own binary",
				Reason: "the running program is a test binary; set LOCKQUAKE_BIN to the built one",
			}
		}
		path = exe
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", chaos.Unavailable{What: "lockquake's own binary", Reason: err.Error()}
	}
	return path, nil
}

// Static returns why a program cannot run in an image that has nothing else.
func Static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return chaos.Unavailable{
			What:   "an image of " + path,
			Reason: "it is not a Linux program; set LOCKQUAKE_BIN to one built with GOOS=linux CGO_ENABLED=0",
		}
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return chaos.Unavailable{
				What:   "an image of " + path,
				Reason: "it needs shared libraries; build it with CGO_ENABLED=0",
			}
		}
	}
	return nil
}

// packages names the Debian package of each program that nodes run.
var packages = map[string]string{
	"redis-server": "redis-server", "redis-sentinel": "redis-sentinel",
	"etcd": "etcd-server",
}

// Find finds the program of a node's command on this machine.
func Find(word, self string) (string, error) {
	if word == node.SelfProgram {
		return Self(self)
	}
	path, err := exec.LookPath(word)
	if err == nil {
		return filepath.Abs(path)
	}
	hint := "install it"
	if p := packages[word]; p != "" {
		hint = "install the package " + p + " (apt-get install " + p + ")"
	}
	return "", chaos.Unavailable{What: word, Reason: "it is not on PATH; " + hint + ", or run with --provider docker"}
}

// RunsAlone reports whether a program runs in an image that has nothing else: it is built for Linux, and needs no
// shared library.
func RunsAlone(path string) bool { return Static(path) == nil }

// SelfHash returns a hash of lockquake's own binary as nodes run it, combined with the running one if that differs.
func SelfHash() (string, error) {
	nodes, err := Self("")
	if err != nil {
		return "", err
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	hash, err := Hash(nodes)
	if err != nil || own == nodes {
		return hash, err
	}
	other, err := Hash(own)
	return hash + "-" + other, err
}

// hashed caches hashes of files by fileState: every run asks for the hash of the own binary, and in a swarm once per
// host.
var hashed sync.Map

type fileState struct {
	path    string
	size    int64
	changed int64 // ns
}

// Hash returns a hash of a file's content.
func Hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	state := fileState{path, info.Size(), info.ModTime().UnixNano()}
	if known, ok := hashed.Load(state); ok {
		return known.(string), nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	sum := hex.EncodeToString(h.Sum(nil))[:16]
	hashed.Store(state, sum)
	return sum, nil
}
