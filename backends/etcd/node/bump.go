package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/lockquake/lockquake/internal/node"
)

// BumpFlag is a flag of lockquake's that etcd does not have: by how much to raise revisions if the data directory was
// restored from a copy.
const BumpFlag = "bump-revision"

// bump does what `etcdutl snapshot restore --skip-hash-check --bump-revision BY --mark-compacted` does, and replaces
// the data directory with the result. It does nothing to data that the member has written itself. Source: etcd
// documentation, "Disaster recovery", section "Restoring with revision bump".
func (f *flags) bump(by string) error {
	n, err := strconv.ParseUint(by, 10, 63)
	if err != nil || n == 0 {
		return fmt.Errorf("node etcd: --%s is %q; it must be a whole number above 0", BumpFlag, by)
	}
	dir, _ := f.value("data-dir")
	mark := filepath.Join(filepath.Dir(dir), node.RestoredMark)
	if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("node etcd: %w", err)
	}
	log, err := zap.NewProduction() // to standard error, which is the node's log
	if err != nil {
		return fmt.Errorf("node etcd: %w", err)
	}
	name, _ := f.value("name")
	cluster, _ := f.value("initial-cluster")
	token, _ := f.value("initial-cluster-token")
	peer, _ := f.value("initial-advertise-peer-urls")
	raised := dir + ".raised"
	for _, step := range []func() error{ // the mark stays until all steps are done
		func() error { return os.RemoveAll(raised) },
		func() error {
			return snapshot.NewV3(log).Restore(snapshot.RestoreConfig{
				// a data directory's snapshot has no hash
				SnapshotPath: filepath.Join(dir, "member", "snap", "db"), SkipHashCheck: true,
				OutputDataDir: raised, Name: name, InitialCluster: cluster, InitialClusterToken: token,
				PeerURLs:     []string{peer},
				RevisionBump: n, MarkCompacted: true,
			})
		},
		func() error { return os.RemoveAll(dir) },
		func() error { return os.Rename(raised, dir) },
		func() error { return os.Remove(mark) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("node etcd: raise the revisions of %s: %w", dir, err)
		}
	}
	return nil
}
