// Package pipe is the control streams of child processes: pipes that are read in batches, and cut where something else
// holds them open.
package pipe

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Reader is the reading end of a control stream. It ends when nobody holds the other end, or when it is cut.
type Reader struct {
	f   *os.File
	cut atomic.Bool
}

// NewReader returns the stream that a file is the reading end of.
func NewReader(f *os.File) *Reader { return &Reader{f: f} }

// Read reads until the stream ends or is cut.
func (c *Reader) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	if c.cut.Load() {
		return 0, io.EOF
	}
	return n, err
}

// ReleasedWithin waits until nobody can write into the stream any more. It cuts one that somebody holds longer than
// that, and reports whether nobody did.
func (c *Reader) ReleasedWithin(bound time.Duration) bool {
	for until := clock.Now() + int64(bound); held(c.f); time.Sleep(bound / 50) {
		if clock.Now() > until {
			c.cut.Store(true)
			wake(c.f)
			return false
		}
	}
	return true
}

const (
	// batchFor is how long a busy stream is left to fill before it is read again. All streams are read at the same
	// moments, so that this process wakes up once for all of them.
	batchFor = 8 * time.Millisecond
	// busy is how soon after the last one a read counts as part of a busy stream.
	busy = batchFor
)

// batchReader reads a stream that the operating system buffers. A client that records sends thousands of small writes a
// second, and each would wake its reader; on a machine with few cores that costs more than what is read. So a busy
// stream is left alone for a moment after each read. It delays what arrives by no more than batchFor, where a read
// returns all that has gathered: one of a TLS connection returns one record, so that a busy one would fall behind for
// ever. It spares the wake-ups only where the reader is not watched by the runtime's poller: see New.
type batchReader struct {
	r    io.Reader
	last int64 // ns: when the last read returned
}

// Batched reads a stream in batches while it is busy.
func Batched(r io.Reader) io.Reader { return &batchReader{r: r} }

// Read reads what has gathered.
func (g *batchReader) Read(p []byte) (int, error) {
	if g.last != 0 && clock.Now()-g.last < int64(busy) {
		time.Sleep(batchFor - time.Duration(clock.Now())%batchFor)
	}
	n, err := g.r.Read(p)
	g.last = clock.Now()
	return n, err
}
