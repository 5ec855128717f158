// Package testnode stands in for lockquake's own binary in the tests of the providers.
package testnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/disk"
)

// Main is the main function of a node: "agent", "on-disk DEVICE DIR USER PROGRAM ARGV...", "echo ADDRESS DIR", "stdio",
// "busy" or "eat MIB ADDRESS DIR".
func Main(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: agent | echo ADDRESS DIR | stdio | busy | eat MIB ADDRESS DIR")
	}
	switch args[0] {
	case "node": // as lockquake starts its agent
		return Main(ctx, args[1:], stdin, stdout)
	case "agent":
		if deaf := os.Getenv(Deaf); deaf != "" {
			return deafAgent(ctx, deaf, os.Getenv(DeafAnswer), stdin, stdout)
		}
		return agent.Main(ctx, stdin, stdout, all.All())
	case "on-disk": // as lockquake starts a server on a disk of its own
		user, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return disk.OnDisk(args[1], args[2], user, args[4:])
	case "echo":
		return echo(ctx, args[1], args[2])
	case "stdio":
		return stdio(stdin, stdout)
	case "busy":
		for ctx.Err() == nil { //nolint:revive // using up a CPU is the point
		}
		return nil
	case "eat":
		mib, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		eaten := make([]byte, mib<<20)
		for i := 0; i < len(eaten); i += 4096 {
			eaten[i] = 1
		}
		defer runtime.KeepAlive(eaten)
		return echo(ctx, args[2], args[3])
	}
	return fmt.Errorf("unknown mode %q", args[0])
}

// stdio says hello, and echoes lines until its input ends. For "dial ADDRESS" it prints the first line from there. For
// "try ADDRESS" it does the same, but waits only briefly: nothing is expected.
func stdio(stdin io.Reader, stdout io.Writer) error {
	fmt.Fprintln(os.Stderr, "stdio is up")
	fmt.Fprintln(stdout, "hello")
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		answer := "echo " + lines.Text()
		if addr, ok := strings.CutPrefix(lines.Text(), "dial "); ok {
			answer = firstLine(addr, 3*time.Second)
		} else if addr, ok := strings.CutPrefix(lines.Text(), "try "); ok {
			answer = firstLine(addr, 500*time.Millisecond)
		}
		fmt.Fprintln(stdout, answer)
	}
	return lines.Err()
}

func firstLine(addr string, patience time.Duration) string {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// echo greets each connection with the number of its starts with this directory, and then echoes every byte.
func echo(ctx context.Context, addr, dir string) error {
	f, err := os.OpenFile(dir+"/starts", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _ = f.WriteString("x")
	info, err := f.Stat()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	fmt.Fprintln(os.Stderr, "listening")
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = fmt.Fprintf(c, "start %d\n", info.Size())
			_, _ = io.Copy(c, c)
		}()
	}
}
