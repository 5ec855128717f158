// Command election shows that Election.Campaign of go.etcd.io/etcd/client/v3 v3.7.3 returns nil to a waiter whose
// session has ended, while another client holds the lead. Usage: go run ./election HOST:PORT
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
	open := func() (*concurrency.Election, *concurrency.Session) {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(10))
		check(err)
		return concurrency.NewElection(s, "lock"), s
	}
	inside := make(chan string, 2)
	wait := func(name string, l *concurrency.Election) {
		err := l.Campaign(context.Background(), "me")
		inside <- fmt.Sprintf("Campaign of %s: %v", name, err)
	}
	take := func(l *concurrency.Election) error { return l.Campaign(context.Background(), "me") }
	a, _ := open()
	check(take(a))
	b, session := open()
	go wait("B", b)
	time.Sleep(500 * time.Millisecond) // B's key is in the queue
	_, err = client.Revoke(context.Background(), session.Lease())
	check(err) // as the server does with a session that was silent for its TTL
	<-session.Done()
	c, _ := open()
	go wait("C", c)
	time.Sleep(500 * time.Millisecond)
	give := func(l *concurrency.Election) error { return l.Resign(context.Background()) }
	check(give(a))
	for range 2 {
		select {
		case text := <-inside:
			fmt.Println(text)
		case <-time.After(3 * time.Second):
			fmt.Println("one of B and C is still waiting")
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
