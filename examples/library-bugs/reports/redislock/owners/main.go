// Command owners shows that github.com/bsm/redislock v0.10.0 grants to the owner worker-1 a lock that worker-1.2 holds.
// Usage: go run ./owners HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Args[1], Password: os.Getenv("REDISCLI_AUTH")})
	defer client.Close()
	key := fmt.Sprintf("owners-%d", time.Now().UnixNano())
	take := func(owner string) {
		lock, err := redislock.New(client).Obtain(ctx, key, time.Minute, &redislock.Options{Token: owner})
		if err != nil {
			fmt.Printf("Obtain of %s: %v\n", owner, err)
			return
		}
		left, err := lock.TTL(ctx)
		fmt.Printf("Obtain of %s: <nil>; its TTL is %v (%v); the key has %q\n", owner, left.Round(time.Second), err, client.Get(ctx, key).Val())
	}
	take("worker-1.2")
	take("worker-3")
	take("worker-1")
}
