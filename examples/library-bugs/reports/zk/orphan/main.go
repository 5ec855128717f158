// Command orphan shows that Lock of github.com/go-zookeeper/zk v1.0.4 leaves its node in the queue when the connection
// breaks during the call: the session lives on, and nobody gets the lock. Usage: go run ./orphan HOST:PORT
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// children is the number of the request that Lock sends behind its create.
const children = 12

// cut closes the connection once, in place of the first request for children that it is asked to send.
type cut struct {
	net.Conn
	armed *atomic.Bool
}

func (c cut) Write(b []byte) (int, error) {
	if len(b) > 11 && b[11] == children && c.armed.CompareAndSwap(true, false) {
		return 0, errors.Join(errors.New("the link broke"), c.Close())
	}
	return c.Conn.Write(b)
}

func main() {
	armed := &atomic.Bool{}
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, timeout)
		return cut{conn, armed}, err
	}
	conn, _, err := zk.Connect(os.Args[1:], 10*time.Second, zk.WithDialer(dial))
	check(err)
	path := fmt.Sprintf("/orphan-%d", time.Now().Unix())
	armed.Store(true)
	fmt.Println("Lock:", zk.NewLock(conn, path, zk.WorldACL(zk.PermAll)).Lock())
	time.Sleep(3 * time.Second) // the client has connected again
	again := make(chan error, 1)
	go func() { again <- zk.NewLock(conn, path, zk.WorldACL(zk.PermAll)).Lock() }()
	select {
	case err := <-again:
		fmt.Println("Lock again:", err)
	case <-time.After(5 * time.Second):
		nodes, _, err := conn.Children(path)
		fmt.Printf("Lock again: nothing for 5 s; %d nodes in the queue (%v), session %#x\n", len(nodes), err, conn.SessionID())
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
