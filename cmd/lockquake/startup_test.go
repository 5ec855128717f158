//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestStartUp prints, for each backend, the time until the service serves, and that of its teardown, started by
// lockquake and by compose in turn. LOCKQUAKE_ROUNDS sets the number of turns (default 3), LOCKQUAKE_BACKENDS the
// backends (default all).
func TestStartUp(t *testing.T) {
	n, names, p := times(t, "LOCKQUAKE_ROUNDS", 3), measured(), providerFor(t, "docker", "start-up")
	if _, err := cluster.SelfImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	compose, err := findCompose()
	if err != nil {
		fmt.Printf("start-up is measured without compose beside it: %v\n", err)
	}
	fmt.Printf("start-up until the service serves, and teardown, in seconds: medians (least to most) of %d; load %s\n", n, readFirstLine("/proc/loadavg"))
	for _, name := range names {
		var ours, theirs trial
		for i := range n {
			arms := []func(){func() { ours.add(startOurs(t, p, name, i)) }}
			if compose != nil {
				arms = append(arms, func() { theirs.add(compose.start(t, name)) })
			}
			if i%2 == 1 {
				slices.Reverse(arms) // neither arm always comes first
			}
			for _, arm := range arms {
				arm()
			}
		}
		fmt.Printf("%-14s lockquake up %s, down %s", name, ours.text(0), ours.text(1))
		if compose != nil {
			fmt.Printf("; %s up %s, down %s", compose.name, theirs.text(0), theirs.text(1))
		}
		fmt.Println()
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// trial collects the times of start-up and teardown in seconds.
type trial [2][]float64

func (t *trial) add(up, down time.Duration) {
	t[0], t[1] = append(t[0], up.Seconds()), append(t[1], down.Seconds())
}

func (t *trial) text(of int) string {
	s := slices.Sorted(slices.Values(t[of]))
	return fmt.Sprintf("%5.2f (%.2f to %.2f)", (s[(len(s)-1)/2]+s[len(s)/2])/2, s[0], s[len(s)-1])
}

// startOurs starts the servers as a run does, and stops them again.
func startOurs(t *testing.T, p cluster.Provider, name string, round int) (up, down time.Duration) {
	t.Helper()
	hand, err := compose.New(name)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c, err := p.Open(t.Context(), cluster.Request{Run: fmt.Sprintf("b%x%d", os.Getpid(), round), Specs: hand.Specs, LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	started := make(chan error, len(c.Nodes))
	for _, n := range c.Nodes {
		go func() { started <- n.Process.Start(t.Context()) }()
	}
	for range c.Nodes {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	service := hand.Topology.Service(cluster.Handles(c.Nodes))
	until(t, name, func() error { return service.Ready(t.Context()) })
	up = time.Since(begin)
	_ = service.Close()
	begin = time.Now()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return up, time.Since(begin)
}

// until asks repeatedly, for two minutes at most.
func until(t *testing.T, what string, ask func() error) {
	t.Helper()
	var err error
	if !wait.Within(2*time.Minute, func() bool { err = ask(); return err == nil }) {
		t.Fatalf("%s does not serve: %v", what, err)
	}
}

// composer starts topologies by compose.
type composer struct {
	name string
	argv []string
	api  *client.Client
}

// composeProject separates the bench's containers from those of people.
const composeProject = "lockquakebench"

// findCompose finds compose version 2, or else version 1.
func findCompose() (*composer, error) {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	for _, argv := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		out, err := exec.Command(argv[0], append(argv[1:], "version", "--short")...).Output()
		if err == nil {
			return &composer{name: "compose " + strings.TrimSpace(string(out)), argv: argv, api: api}, nil
		}
	}
	return nil, errors.New("there is neither docker compose nor docker-compose")
}

// start starts one profile and polls until every health check passes, because v1 cannot wait for them by itself.
func (c *composer) start(t *testing.T, name string) (up, down time.Duration) {
	t.Helper()
	text, err := compose.File(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "docker-compose.yml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		argv := slices.Concat(c.argv, []string{"-f", file, "-p", composeProject, "--profile", name}, args)
		var said bytes.Buffer
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said.String())
		}
		return nil
	}
	begin := time.Now()
	err = run("up", "-d")
	defer func() {
		if t.Failed() {
			_ = run("down", "-v", "-t", "0")
		}
	}()
	if err != nil {
		t.Error(err)
		t.FailNow()
	}
	until(t, name, func() error { return c.healthy(t.Context()) })
	up = time.Since(begin)
	begin = time.Now()
	if err := run("down", "-v", "-t", "0"); err != nil { // killed, as ours are
		t.Fatal(err)
	}
	return up, time.Since(begin)
}

// healthy returns an error while a container of the project is not healthy.
func (c *composer) healthy(ctx context.Context) error {
	of := make(client.Filters).Add("label", "com.docker.compose.project="+composeProject)
	list, err := c.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: of})
	if err != nil {
		return err
	}
	for _, box := range list.Items {
		if box.State != container.StateRunning || !strings.Contains(box.Status, "(healthy)") {
			return fmt.Errorf("%v is %s", box.Names, box.Status)
		}
	}
	return nil
}
