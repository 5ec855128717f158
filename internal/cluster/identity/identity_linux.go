// Package identity has the user that servers of the local provider run as.
package identity

import (
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// User is the user, and the group of the same number, of a local run's servers if the supervisor is root.
type User uint32

// The ranges of identities, which are not assigned to users. The first is between the ids of containers (in systemd's
// scheme) and those that programs take for negative. The second, which distributions leave unused, is for root in a
// user namespace, which has fewer ids.
var identityRanges = []struct{ first, count uint32 }{{0x70000000, 1 << 24}, {30000, 29999}}

// OfServers returns the identity of a run's servers. It is 0, the supervisor's own user, if that is not root or cannot
// change users.
func OfServers(run string) User {
	if os.Geteuid() != 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(run))
	for _, r := range identityRanges {
		id := r.first + h.Sum32()%r.count
		if known("/proc/self/uid_map", id) && known("/proc/self/gid_map", id) {
			return User(id)
		}
	}
	return 0
}

// CheckCapabilities returns an error if root lacks the capabilities to start and end processes of other users.
func CheckCapabilities() error {
	if OfServers("") == 0 {
		return nil
	}
	return withoutCapabilities(proc.Capable)
}

func withoutCapabilities(capable func(uint) bool) error {
	var lacks []string
	for name, c := range proc.ManagesUsers {
		if !capable(c) {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return chaos.Unavailable{
		What: "running servers of the local provider",
		Reason: "root starts them as another user and ends them, and this process has no " +
			strings.Join(lacks, " and no ") +
			": give it that (--cap-add in Docker), or start lockquake as another user than root",
	}
}

// known reports whether a number is mapped to a user or group in this user namespace.
func known(file string, id uint32) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[0], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 == nil && err2 == nil && uint64(id) >= first && uint64(id) < first+count {
			return true
		}
	}
	return false
}

// Take makes a child run as that user.
func (i User) Take(a *syscall.SysProcAttr) {
	if i != 0 {
		a.Credential = &syscall.Credential{Uid: uint32(i), Gid: uint32(i)}
	}
}

// Give makes the identity the owner of a file.
func (i User) Give(path string) error {
	if i == 0 {
		return nil
	}
	return os.Chown(path, int(i), int(i))
}
