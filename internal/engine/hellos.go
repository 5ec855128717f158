package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// Hellos starts one client of each program that stands in for lockquake's own client, and returns what they say of themselves. No server is started for
// that: a hello comes unasked, before a client is told where the service is. There are none where the clients are lockquake's own.
func Hellos(ctx context.Context, o Options) (hellos []*wire.Hello, err error) {
	p, err := Check(o)
	if err != nil || len(p.programs) == 0 {
		return nil, err
	}
	logs, err := os.MkdirTemp("", "lockquake-hello-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(logs)) }()
	specs := make([]node.Spec, len(p.programs))
	for i := range specs {
		specs[i] = planner{Plan: p, Options: o}.clientSpec(i)
	}
	c, err := o.Provider.Open(ctx, cluster.Request{Run: newID(), Specs: specs, Images: o.Images, LogDir: logs, Log: o.Log})
	if err != nil {
		return nil, err
	}
	hellos, err = hellosOf(ctx, o, c)
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), generous.close)
	defer cancel()
	if closed := c.Close(ended); err != nil || closed != nil {
		return nil, errors.Join(err, closed, lastWords(logs))
	}
	return hellos, nil
}

func hellosOf(ctx context.Context, o Options, c *cluster.Cluster) (hellos []*wire.Hello, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, generous.hello, fmt.Errorf("not within %v", generous.hello))
	defer cancel()
	if err := cluster.StartAll(ctx, c.Nodes); err != nil {
		return nil, err
	}
	for i, n := range c.Nodes {
		s := newProcess(n, i, newLive(), wire.NewConn(n.Stdio().Out, n.Stdio().In))
		s.log = o.Log
		go s.read()
		err := s.await(ctx, s.greeted, "hello")
		_ = s.conn.Close()
		if err != nil {
			return nil, err
		}
		hellos = append(hellos, s.greeting())
	}
	return hellos, nil
}

// lastWords are the last lines that nodes wrote into their logs, as an error; nil: there are none.
func lastWords(logs string) error {
	files, err := filepath.Glob(filepath.Join(logs, "*.log"))
	errs := []error{err}
	for _, file := range files {
		text, err := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if errs = append(errs, err); lines[0] != "" {
			errs = append(errs, fmt.Errorf("%s: its last line: %s", strings.TrimSuffix(filepath.Base(file), ".log"), lines[len(lines)-1]))
		}
	}
	return errors.Join(errs...)
}

// Lacks says what the scenario asks of clients that the hellos of their programs, which take turns, do not announce; nil: nothing.
func (p *Plan) Lacks(hellos []*wire.Hello) error {
	for i := range p.namesOf(node.Client) {
		if len(hellos) == 0 {
			break
		}
		if err := checkAnnounced(p, clientName(i), hellos[i%len(hellos)]); err != nil {
			return err
		}
	}
	return nil
}
