package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// writeStamp tells the programs of a process's file system their wall clock: by how many ns it is ahead. libfaketime, where it was
// loaded into them, reads the file once a second, so they never see half of one. Its comment says whose work it is.
func writeStamp(pid int, path string, ahead int64, by mover) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the file that tells a clock is %q: want an absolute path", path)
	}
	at := fmt.Sprintf("/proc/%d/root%s", pid, path)
	text := fmt.Sprintf("# %s %d %d %d\n%+d.%09d\n", stampMark, by.PID, by.NS, by.Start, ahead/int64(time.Second), abs(ahead%int64(time.Second)))
	if ahead > -int64(time.Second) && ahead < 0 {
		text = strings.Replace(text, "+0.", "-0.", 1)
	}
	if err := os.WriteFile(at+".new", []byte(text), 0o644); err != nil {
		return fmt.Errorf("tell the clock of pid %d by %s: %w", pid, path, absent(err))
	}
	if err := os.Rename(at+".new", at); err != nil {
		return fmt.Errorf("tell the clock of pid %d by %s: %w", pid, path, err)
	}
	return nil
}

func abs(n int64) int64 { return max(n, -n) }

// stampMark begins the comment of such a file.
const stampMark = "lockquake clock, by"

// readStamp returns who wrote the file that tells the clock of a process, and whether it says that the clock is shifted.
func readStamp(pid int, path string) (by mover, stands bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", pid, path))
	if err != nil {
		return mover{}, false
	}
	comment, shift, _ := strings.Cut(string(b), "\n")
	if _, err := fmt.Sscanf(comment, "# "+stampMark+" %d %d %d", &by.PID, &by.NS, &by.Start); err != nil {
		return mover{}, false
	}
	return by, strings.Trim(shift, "+-0.\n") != ""
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

// faketimeFile returns where a process looks for its time, if it does.
func faketimeFile(pid int) (string, error) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", absent(err)
	}
	for setting := range bytes.SplitSeq(env, []byte{0}) {
		if path, ok := bytes.CutPrefix(setting, []byte("FAKETIME_TIMESTAMP_FILE=")); ok && filepath.IsAbs(string(path)) {
			return string(path), nil
		}
	}
	return "", errors.ErrUnsupported
}
