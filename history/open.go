package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Bounds of what is read whole, in bytes.
const (
	MostText = 64 << 20  // one object: a verdict, a scenario
	MostList = 512 << 20 // many lines or cells
)

// OpenFile opens a file that somebody else may have made. It must be a regular file: a pipe would be waited for, and a
// device may have no end. The error wraps ErrCorrupt where it is none.
func OpenFile(path string) (*os.File, int64, error) { return open(path, 0) }

// ReadFile reads such a file, which has at most so many bytes.
func ReadFile(path string, most int64) ([]byte, error) { return read(path, 0, most) }

// ReadOwn reads a file that belongs to a directory which somebody else may have made. A link is refused: it could lead
// to a file that only the reader may read, and whose beginning an error would quote.
func ReadOwn(path string, most int64) ([]byte, error) { return read(path, noFollow, most) }

func open(path string, flags int) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait|flags, 0)
	if errors.Is(err, errLink) {
		return nil, 0, fmt.Errorf("%w: %s: it is a link: want a file of the directory itself", ErrCorrupt, path)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%w: %s: it %w: want a file", ErrCorrupt, path, syscall.EISDIR)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: %s: it is no regular file", ErrCorrupt, path)
	default:
		return f, info.Size(), nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

func read(path string, flags int, most int64) ([]byte, error) {
	f, size, err := open(path, flags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > most { // before anything is read: holes take no room on a disk, and do in memory
		return nil, fmt.Errorf("%w: %s: it has %d bytes: want at most %d", ErrCorrupt, path, size, most)
	}
	b := make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, err
}
