//go:build linux

// Command netemvm is the first process of a User-Mode Linux whose kernel has sch_netem. It loads the modules, runs the
// tests of the link shaping faults and a scenario as on any machine, and powers the machine off. The guest's exit code
// is lost, so netemvm prints the result, which `make test-netem` reads.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables, from the kernel's command line.
const (
	envTree    = "NETEM_TREE"    // the directory of the project
	envModules = "NETEM_MODULES" // the kernel's modules
)

// scratch is the only writable directory; the rest is the host's, and read-only. The tree may be below /tmp.
const scratch = "/run/netem"

// modules are the kernel modules that the faults need; in the guest nothing loads them automatically.
var modules = []string{
	"veth", "bridge", "sch_htb", "sch_tbf", "sch_netem", "cls_u32", "nf_tables",
}

// step is one step that must succeed.
type step struct {
	name    string
	command []string // below the tree
	in      string   // directory, below the tree
	says    []string // what its output must contain
}

var steps = []step{
	{
		name: "agent", in: "internal/agent/links",
		command: []string{
			"build/netem/agent.test", "-test.v", "-test.timeout", "120s", "-test.run",
			"^(TestShaping|TestShapingsOfPorts|TestShapingsCompose|TestShapingsGoWithTheControlStream|TestRate|TestTree.*)$",
		},
		says: []string{
			"--- PASS: TestShaping/netem/delay", "--- PASS: TestShaping/netem/duplicate",
			"--- PASS: TestShapingsOfPorts/netem",
		},
	},
	{
		name: "faults", in: "internal/cluster",
		command: []string{
			"build/netem/cluster.test", "-test.v", "-test.timeout", "180s", "-test.run",
			"^(TestEveryFaultThatShapesLinks|TestAgentThatShapesNothing|TestEveryLinkFaultToForeignServers|TestForeignServersSeeNoFault)$",
		},
		says: []string{"by netem of the kernel", "duplicate {share: 30%}: installed"},
	},
	{
		name: "run", in: scratch,
		command: []string{"build/lockquake", "run", "internal/netemvm/netem.yaml", "--provider", "local", "-v"},
		says:    []string{"by netem of the kernel", "duplicate on"},
	},
}

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "netemvm: it must be the first process of a machine; run make test-netem")
		os.Exit(2)
	}
	err := run()
	if err != nil {
		fmt.Printf("NETEM-VM FAILED: %v\n", err)
	} else {
		fmt.Printf("NETEM-VM PASSED: %d steps\n", len(steps))
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	tree := os.Getenv(envTree)
	if err := prepare(); err != nil {
		return err
	}
	var errs []error
	for _, s := range steps {
		begin, call := time.Now(), systemCall()
		err := s.run(tree)
		if err != nil {
			errs = append(errs, fmt.Errorf("step %s: %w", s.name, err))
		}
		fmt.Printf("NETEM-VM step %s took %.1f s (a system call %v before, %v after): %v\n", s.name,
			time.Since(begin).Seconds(), call, systemCall(), err)
	}
	return errors.Join(errs...)
}

// systemCall measures the average duration of a system call. It shows how fast this machine is, and how busy its host.
// Without a clock in user space, reading the time is a system call too.
func systemCall() time.Duration {
	const n = 2000
	begin := time.Now()
	for range n {
		unix.Getppid()
	}
	return (time.Since(begin) / n).Round(100 * time.Nanosecond)
}

// prepare sets up the guest: file systems, loopback link, modules.
func prepare() error {
	for _, m := range [][3]string{{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"tmpfs", "/run", "tmpfs"}} {
		if err := unix.Mount(m[0], m[1], m[2], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	if err := os.Mkdir(scratch, 0o755); err != nil { // nodes run as other users
		return err
	}
	dir := os.Getenv(envModules)
	needs, err := dependencies(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	for _, name := range modules {
		if err := load(dir, needs, name); err != nil {
			return err
		}
	}
	return os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

// dependencies returns the files that each module needs, its own first.
func dependencies(path string) (map[string][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list the kernel's modules: %w", err)
	}
	defer func() { _ = f.Close() }()
	out := map[string][]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		file, more, _ := strings.Cut(lines.Text(), ":")
		out[strings.TrimSuffix(filepath.Base(file), ".ko")] = append([]string{file}, strings.Fields(more)...)
	}
	return out, lines.Err()
}

// load loads a module and its dependencies; a loaded one is no error.
func load(dir string, needs map[string][]string, name string) error {
	if needs[name] == nil {
		return fmt.Errorf("the kernel has no module %s", name)
	}
	for _, file := range slices.Backward(needs[name]) {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("load module %s: %w", name, err)
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %s (%s): %w", name, file, err)
		}
	}
	return nil
}

func (s step) run(tree string) error {
	command := slices.Clone(s.command)
	for i, word := range command {
		if strings.HasPrefix(word, "build/") || strings.HasPrefix(word, "internal/") {
			command[i] = filepath.Join(tree, word)
		}
	}
	cmd := exec.Command(command[0], command[1:]...)
	if cmd.Dir = s.in; !filepath.IsAbs(s.in) {
		cmd.Dir = filepath.Join(tree, s.in)
	}
	cmd.Env = append(os.Environ(), "HOME="+scratch, "TMPDIR="+scratch, "LOCKQUAKE_TEST_NETEM=required",
		"LOCKQUAKE_BIN="+filepath.Join(tree, "build/lockquake"))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	fmt.Printf("%s\n", said.String())
	if err != nil {
		return err
	}
	for _, text := range s.says {
		if !strings.Contains(said.String(), text) {
			return fmt.Errorf("its output lacks %q", text)
		}
	}
	return nil
}
