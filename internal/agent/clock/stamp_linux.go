package clock

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// maxStamp bounds a file that tells a clock, in bytes.
const maxStamp = 4096

// errNoStamp says that something else stands where the file should be that tells a clock.
var errNoStamp = errors.New("it is no small regular file")

// stampDir opens the directory of the file that tells a process its clock. A symbolic link in the target's file system
// cannot lead out of that file system.
func stampDir(pid int, path string) (dir *os.Root, name string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", fmt.Errorf("%q is no absolute path", path)
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return nil, "", proc.Absent(err)
	}
	defer func() { _ = root.Close() }()
	dir, err = root.OpenRoot("." + filepath.Dir(filepath.Clean(path)))
	return dir, filepath.Base(path), err
}

// stampInfo looks at the file without following a link. Nil: there is none.
func stampInfo(dir *os.Root, name string) (fs.FileInfo, error) {
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is an answer
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxStamp) {
		err = errNoStamp
	}
	return info, err
}

// writeStamp tells the programs of a process's file system their wall clock: by how many ns it is ahead. libfaketime,
// where it was loaded into them, reads the file once a second, so they never see half of one. Its comment says whose
// work it is.
func writeStamp(pid int, path string, ahead int64, by proc.Program) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("tell the clock of pid %d by %s: %w", pid, path, err)
		}
	}()
	dir, name, err := stampDir(pid, path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if _, err := stampInfo(dir, name); err != nil {
		return err
	}
	text := fmt.Sprintf("# %s %d %d %d\n%+d.%09d\n", stampMark, by.PID, by.NS, by.Start, ahead/int64(time.Second),
		abs(ahead%int64(time.Second)))
	if ahead > -int64(time.Second) && ahead < 0 {
		text = strings.Replace(text, "+0.", "-0.", 1)
	}
	made := name + "." + rand.Text()
	f, err := dir.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close()) // the process reads it, whatever our umask is
	if err == nil {
		err = dir.Rename(made, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(made))
	}
	return nil
}

func abs(n int64) int64 { return max(n, -n) }

// stampMark begins the comment of such a file.
const stampMark = "lockquake clock, by"

// readStamp returns who wrote the file that tells the clock of a process, and whether it says that the clock is
// shifted.
func readStamp(pid int, path string) (by proc.Program, stands bool) {
	b, err := stampText(pid, path)
	if err != nil {
		return proc.Program{}, false
	}
	comment, shift, _ := strings.Cut(string(b), "\n")
	if _, err := fmt.Sscanf(comment, "# "+stampMark+" %d %d %d", &by.PID, &by.NS, &by.Start); err != nil {
		return proc.Program{}, false
	}
	return by, strings.Trim(shift, "+-0.\n") != ""
}

// stampText reads the file, if it is the one that was looked at before it was opened.
func stampText(pid int, path string) ([]byte, error) {
	dir, name, err := stampDir(pid, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	seen, err := stampInfo(dir, name)
	if err != nil || seen == nil {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe does not wait for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !os.SameFile(info, seen) {
		return nil, errors.Join(err, errNoStamp)
	}
	return io.ReadAll(io.LimitReader(f, maxStamp))
}

// preloaded says for a receipt whether libfaketime is in the process.
func preloaded(pid int) string {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	switch {
	case err != nil:
		return "libfaketime"
	case !bytes.Contains(maps, []byte("/libfaketime")):
		return "libfaketime, which is not loaded into the process"
	}
	return "libfaketime, loaded into the process"
}
