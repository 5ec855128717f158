//go:build unix

package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadFile: a file that is not regular, or is too large, is refused at once, without waiting and without
// allocating memory.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("seven b"), 0o600), os.WriteFile(at("holes"), nil, 0o600), os.Truncate(at("holes"), 1<<40),
		syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("file", at("link"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		most int64
		own  bool
		want string // of the error; "": none
	}{
		{at("file"), 7, false, ""},
		{at("file"), 7, true, ""},
		{at("file"), 6, false, "it has 7 bytes: want at most 6"},
		{at("holes"), MostList, false, "it has 1099511627776 bytes"},
		{at("pipe"), 7, false, "it is no regular file"},
		{"/dev/zero", 7, false, "it is no regular file"},
		{dir, 7, false, "it is a directory: want a file"},
		{at("link"), 7, false, ""},
		{at("link"), 7, true, "it is a link"},
	} {
		read := ReadFile
		if c.own {
			read = ReadOwn
		}
		b, err := read(c.path, c.most)
		switch {
		case c.want == "" && (err != nil || string(b) != "seven b"):
			t.Errorf("%s: %q, %v", c.path, b, err)
		case c.want != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if _, err := ReadFile(at("gone"), 7); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
