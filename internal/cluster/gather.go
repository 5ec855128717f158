package cluster

import (
	"io"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

const (
	// gatherFor is how long a busy stream is left to fill before it is read again. All streams are read at the same
	// moments, so that this process wakes up once for all of them.
	gatherFor = 8 * time.Millisecond
	// busy is how soon after the last one a read counts as part of a busy stream.
	busy = gatherFor
)

// gatherer reads a stream that the operating system buffers. A client that records sends thousands of small writes a
// second, and each would wake its reader; on a machine with few cores that costs more than what is read. So a busy
// stream is left alone for a moment after each read. It delays what arrives by no more than gatherFor. It spares the
// wake-ups only where the reader is not watched by the runtime's poller: see blockingPipe.
type gatherer struct {
	r    io.Reader
	last int64 // ns: when the last read returned
}

func gather(r io.Reader) io.Reader { return &gatherer{r: r} }

// Read reads what has gathered.
func (g *gatherer) Read(p []byte) (int, error) {
	if g.last != 0 && clock.Now()-g.last < int64(busy) {
		time.Sleep(gatherFor - time.Duration(clock.Now())%gatherFor)
	}
	n, err := g.r.Read(p)
	g.last = clock.Now()
	return n, err
}
