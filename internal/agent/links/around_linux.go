package links

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"golang.org/x/sys/unix"
)

// doAround lists what acts on the packets of a process.
func doAround(_ context.Context, c agent.Call) (any, error) {
	var out links.Around
	space, err := openNamespace(c.Process)
	if errors.Is(err, errShared) {
		out.Shared = true
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Links, err = space.ruled(c.Process.PID)
	return out, errors.Join(err, space.close())
}

// ruled lists what acts on the packets of a namespace: the packet filter tables of either kind, and traffic control
// that is not the kernel's default.
func (n *namespace) ruled(pid int) ([]string, error) {
	var out []string
	tables, err := allTables(n)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		out = append(out, "table "+t)
	}
	for _, of := range []string{"ip_tables_names", "ip6_tables_names"} { // those of iptables' older kind
		names, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, of))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the packet filter tables: %w", err)
		}
		for name := range strings.FieldsSeq(string(names)) {
			out = append(out, of+" "+name)
		}
	}
	shaped, err := n.shaped()
	slices.Sort(out)
	return append(out, shaped...), err
}

// shaped lists the links with traffic control at their root, with its kind.
func (n *namespace) shaped() ([]string, error) {
	all, err := n.roots()
	var out []string
	for link, root := range all {
		if root.Type() != "noqueue" {
			out = append(out, fmt.Sprintf("%s of %s", root.Type(), link))
		}
	}
	slices.Sort(out)
	return out, err
}
