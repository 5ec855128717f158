package testnode

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/all"
)

// Deaf is the environment variable with a comma-separated list of orders that an agent claims to carry out and does
// not: the name of an order, or signal:STOP for one signal.
const Deaf = "TESTNODE_DEAF"

// DeafAnswer is the environment variable with what such an agent answers, as JSON.
const DeafAnswer = "TESTNODE_DEAF_ANSWER"

// deafAgent is an agent that answers some orders and their undo without carrying them out.
func deafAgent(ctx context.Context, deaf, answer string, stdin io.Reader, stdout io.Writer) error {
	if answer == "" {
		answer = `{"packets":7}`
	}
	in, forward := io.Pipe()
	defer forward.Close()
	out := &lines{w: stdout}
	ended := make(chan error, 1)
	go func() { ended <- agent.Main(ctx, in, out, all.All()) }()
	orders := strings.Split(deaf, ",")
	keys := map[string]bool{}
	for s := bufio.NewScanner(stdin); s.Scan(); {
		var r struct {
			ID              uint64
			Do, Key, Signal string
		}
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			return err
		}
		ours := keys[r.Key] && r.Do == "undo" || slices.Contains(orders, r.Do) || r.Do == "signal" &&
			slices.Contains(orders, "signal:"+r.Signal)
		if !ours {
			fmt.Fprintf(forward, "%s\n", s.Bytes())
			continue
		}
		if r.Key != "" {
			keys[r.Key] = true
		}
		fmt.Fprintf(out, `{"id":%d,"result":%s}`+"\n", r.ID, answer)
	}
	forward.Close()
	return <-ended
}

// lines serializes the lines of two writers; each of them writes whole ones.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
