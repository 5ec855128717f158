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

// maxStamp bounds the size of a libfaketime file, in bytes.
const maxStamp = 4096

// errNoStamp means that something else is in the place of the libfaketime file.
var errNoStamp = errors.New("it is not a small regular file")

// stampDir opens the directory of a process's libfaketime file. A symbolic link in the target's file system cannot lead
// out of that file system.
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

// stampInfo returns the file's info without following a link; nil if there is no file.
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

// writeStamp writes how many ns ahead the wall clock is for programs in a process's file system. Where libfaketime is
// loaded, it reads the file once a second. The file is replaced whole, so a program never sees half of one. A comment
// in it names the agent.
func writeStamp(pid int, path string, ahead int64, by proc.Program) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("set the clock of pid %d by %s: %w", pid, path, err)
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

// readStamp returns which agent wrote a process's libfaketime file, and whether it shifts the clock.
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

// stampText reads the file, if it is still the one that was checked before the open.
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
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // O_NONBLOCK: a pipe does not wait for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !os.SameFile(info, seen) {
		return nil, errors.Join(err, errNoStamp)
	}
	return io.ReadAll(io.LimitReader(f, maxStamp))
}

// preloaded says for the receipt whether libfaketime is in the process.
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
