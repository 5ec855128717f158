// Package pipe has the control streams of child processes: pipes that are read in batches, and cut if another process
// holds them open.
package pipe

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Reader is the reading end of a control stream. It ends when no process holds the other end, or when it is cut.
type Reader struct {
	f   *os.File
	cut atomic.Bool
}

// NewReader returns the stream with that reading end.
func NewReader(f *os.File) *Reader { return &Reader{f: f} }

// Read reads until the stream ends or is cut.
func (c *Reader) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	if c.cut.Load() {
		return 0, io.EOF
	}
	return n, err
}

// ReleasedWithin waits until no process can write to the stream any more, and returns true. After the bound it cuts the
// stream and returns false.
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
	// batchFor is how long a busy stream may fill before it is read again. All streams are read at the same moments, so
	// that this process wakes up once for all of them.
	batchFor = 8 * time.Millisecond
	// busy is how soon after the last one a read counts as part of a busy stream.
	busy = batchFor
)

// batchReader reads a stream that the operating system buffers. A recording client sends thousands of small writes a
// second, and each would wake its reader; with few cores that costs more than the reads. So a busy stream is left alone
// for a moment after each read. This delays data by at most batchFor if a read returns all that has gathered. A read of
// a TLS connection returns one record, so a busy one would fall behind forever. It saves wake-ups only if the runtime's
// poller does not watch the reader: see New.
type batchReader struct {
	r    io.Reader
	last int64 // ns: when the last read returned
}

// Batched reads a stream in batches while it is busy.
func Batched(r io.Reader) io.Reader { return &batchReader{r: r} }

// Read returns what has gathered.
func (g *batchReader) Read(p []byte) (int, error) {
	if g.last != 0 && clock.Now()-g.last < int64(busy) {
		time.Sleep(batchFor - time.Duration(clock.Now())%batchFor)
	}
	n, err := g.r.Read(p)
	g.last = clock.Now()
	return n, err
}
