// Command names shows that a Mutex of go.etcd.io/etcd/client/v3 v3.7.3 waits for the holder of another Mutex whose
// name starts with its own and a slash. Usage: go run ./names HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:], DialTimeout: 5 * time.Second})
	check(err)
	defer client.Close()
	mutex := func(name string) *concurrency.Mutex {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(10))
		check(err)
		return concurrency.NewMutex(s, name)
	}
	other := mutex("part/1/2")
	check(other.Lock(context.Background()))
	defer other.Unlock(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	began := time.Now()
	err = mutex("part").Lock(ctx)
	fmt.Printf("part/1/2 is held, and nobody has part. Lock of part: %v after %v\n", err, time.Since(began).Round(100*time.Millisecond))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
