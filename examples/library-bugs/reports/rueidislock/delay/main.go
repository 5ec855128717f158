// Command delay shows that rueidislock of github.com/redis/rueidis v1.0.79 loses its lock at the second renewal, if the
// round trip to the server is a quarter of the validity. Usage: go run ./delay HOST:PORT
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const validity = 2 * time.Second

// far delivers whatever is written to it a quarter of the validity later.
type far struct{ net.Conn }

func (f far) Write(b []byte) (int, error) {
	sent := bytes.Clone(b)
	time.AfterFunc(validity/4, func() { _, _ = f.Conn.Write(sent) })
	return len(b), nil
}

func dialFar(ctx context.Context, to string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := d.DialContext(ctx, "tcp", to)
	return far{conn}, err
}

func main() {
	to := rueidis.ClientOption{InitAddress: os.Args[1:], Password: os.Getenv("REDISCLI_AUTH")}
	locker := func() rueidislock.Locker {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: to, KeyMajority: 1, KeyValidity: validity, TryNextAfter: validity, NoLoopTracking: true})
		if err != nil {
			panic(err)
		}
		return l
	}
	b := locker()
	to.DialCtxFn = dialFar
	a, begun := locker(), time.Now()
	held, _, errA := a.WithContext(context.Background(), "lock")
	fmt.Printf("%4.1f s: A: %v\n", time.Since(begun).Seconds(), errA)
	_, _, errB := b.WithContext(context.Background(), "lock") // A never releases
	fmt.Printf("%4.1f s: B: %v; A's context: %v\n", time.Since(begun).Seconds(), errB, held.Err())
	<-held.Done()
	fmt.Printf("%4.1f s: A's context: %v\n", time.Since(begun).Seconds(), held.Err())
}
