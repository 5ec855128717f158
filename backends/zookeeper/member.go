package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// member is one server as the harness sees it.
type member struct {
	name    string
	address string
	seat    string        // where the other servers of the ensemble find it
	ttl     time.Duration // of the harness's own sessions, which are closed after each question
	timeout time.Duration
	keys    keyspace
	login   node.Login
	dial    func(ctx context.Context) (net.Conn, error)
}

// word sends one of the four-letter words and returns the answer.
func (m member) word(ctx context.Context, word string) (string, error) {
	c, err := m.dial(ctx)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", word, m.name, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, word); err != nil {
		return "", fmt.Errorf("%s of %s: %w", word, m.name, err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", word, m.name, err)
	}
	return string(b), nil
}

// state is the answer to srvr.
type state struct {
	role    string
	zxid    int64
	version string
}

var (
	modeLine    = regexp.MustCompile(`(?m)^Mode: (\w+)`)
	zxidLine    = regexp.MustCompile(`(?m)^Zxid: (0x[0-9a-f]+)`)
	versionLine = regexp.MustCompile(`(?m)^Zookeeper version: ([0-9.]+)`)
)

// state asks for role, last transaction and version. A server without quorum answers that it does not serve, which is
// an error.
func (m member) state(ctx context.Context) (state, error) {
	text, err := m.word(ctx, "srvr")
	if err != nil {
		return state{}, err
	}
	mode, zxid, version := modeLine.FindStringSubmatch(text), zxidLine.FindStringSubmatch(text),
		versionLine.FindStringSubmatch(text)
	if mode == nil || zxid == nil || version == nil {
		return state{}, fmt.Errorf("srvr of %s: %s", m.name, strings.TrimSpace(text))
	}
	n, err := strconv.ParseInt(zxid[1], 0, 64)
	if err != nil {
		return state{}, fmt.Errorf("srvr of %s: %w", m.name, err)
	}
	return state{role: mode[1], zxid: n, version: version[1]}, nil
}

// metrics returns the sum of the named numbers of mntr.
func (m member) metrics(ctx context.Context, names ...string) (sum int64, err error) {
	numbers, err := m.monitored(ctx, names...)
	for _, n := range numbers {
		sum += n
	}
	return sum, err
}

// monitored returns the named numbers of mntr, all from one answer. A server without quorum does not report them,
// which is an error.
func (m member) monitored(ctx context.Context, names ...string) (map[string]int64, error) {
	text, err := m.word(ctx, "mntr")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !slices.Contains(names, name) {
			continue
		}
		if out[name], err = strconv.ParseInt(v, 10, 64); err != nil {
			return nil, fmt.Errorf("mntr of %s: %w", m.name, err)
		}
	}
	if len(out) != len(names) {
		return nil, fmt.Errorf("mntr of %s has %d of %q", m.name, len(out), names)
	}
	return out, nil
}

// notifications returns how many watch events the server has sent since it started.
func (m member) notifications(ctx context.Context) (int64, error) {
	return m.metrics(ctx, "zk_sum_node_created_watch_count", "zk_sum_node_deleted_watch_count",
		"zk_sum_node_changed_watch_count", "zk_sum_node_children_watch_count")
}

// syncs returns how often the server synced its log to disk, and the total time of that.
func (m member) syncs(ctx context.Context) (topology.Syncs, error) {
	const times, sum = "zk_cnt_fsynctime", "zk_sum_fsynctime"
	n, err := m.monitored(ctx, times, sum)
	return topology.Syncs{N: n[times], Took: time.Duration(n[sum]) * time.Millisecond}, err
}

// monotonic returns for how long the server has been serving, in ns, and since which election of its process. Each
// election restarts the time. A return to the same leader counts as an election too.
func (m member) monotonic(ctx context.Context) (string, error) {
	const uptime, elections = "zk_uptime", "zk_looking_count"
	n, err := m.monitored(ctx, uptime, elections)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d since its election %d", n[uptime]*int64(time.Millisecond), n[elections]), nil
}

// visit opens a session through this server alone for one question.
func (m member) visit(ctx context.Context, question func(*session) error) error {
	s, err := open(ctx, setting{
		servers: []string{m.address}, ask: m.ttl, timeout: m.timeout, login: m.login, once: true,
		dial: func(ctx context.Context, _ string) (net.Conn, error) { return m.dial(ctx) },
	})
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	defer func() { _ = s.leave() }() // if that fails, it expires
	if err := question(s); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// makeRoot creates the parent of all locks.
func (m member) makeRoot(ctx context.Context, s *session) error {
	if _, err := create(ctx, s, m.keys.root(), zk.FlagPersistent); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	return nil
}

// clock opens a session and asks cons when the session's connection was made, by the server's own wall clock. (The
// ctime of a fresh node is by the leader's clock, whichever server created it.)
func (m member) clock(ctx context.Context) (string, error) {
	var at time.Time
	err := m.visit(ctx, func(s *session) error {
		text, err := m.word(ctx, "cons")
		if err != nil {
			return err
		}
		at, err = established(text, s.terms().session)
		return err
	})
	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00"), err
}

var establishedField = regexp.MustCompile(`,est=(\d+),`)

// established finds a session in the answer to cons.
func established(text string, id int64) (time.Time, error) {
	sid := fmt.Sprintf(",sid=0x%x,", uint64(id))
	for line := range strings.Lines(text) {
		if est := establishedField.FindStringSubmatch(line); strings.Contains(line, sid) && est != nil {
			ms, err := strconv.ParseInt(est[1], 10, 64)
			return time.UnixMilli(ms), err
		}
	}
	return time.Time{}, fmt.Errorf("cons does not name session %#x", uint64(id))
}

// contenders returns the nodes of a lock in queue order, after all writes so far.
func contenders(ctx context.Context, s *session, path string) ([]string, error) {
	nodes, err := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
		if _, err := c.Sync(path); err != nil {
			return nil, err
		}
		nodes, _, err := c.Children(path)
		return nodes, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil // the lock was never asked for
	}
	for _, n := range nodes {
		if n == holderNode {
			return []string{n}, err
		}
	}
	return queue(nodes), err
}

func (m member) holder(ctx context.Context, name string) (string, error) {
	id := "none"
	err := m.visit(ctx, func(s *session) error {
		for {
			nodes, err := contenders(ctx, s, m.keys.parent(name))
			if err != nil || len(nodes) == 0 {
				return err
			}
			stat, err := ask(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
				_, stat, err := c.Get(m.keys.parent(name) + "/" + nodes[0])
				return stat, err
			})
			if errors.Is(err, zk.ErrNoNode) {
				continue // released meanwhile
			}
			if err == nil {
				id = grantID(name, stat.Czxid)
			}
			return err
		}
	})
	return id, err
}

func (m member) waiters(ctx context.Context, name string) (string, error) {
	n := 0
	err := m.visit(ctx, func(s *session) error {
		nodes, err := contenders(ctx, s, m.keys.parent(name))
		n = max(len(nodes)-1, 0)
		return err
	})
	return strconv.Itoa(n), err
}

var (
	javaLine = regexp.MustCompile(`(?m)^java\.version=(.*)$`)
	vmLine   = regexp.MustCompile(`(?m)^java\.vendor=(.*)$`)
)

// describe adds what this server reports about itself.
func (m member) describe(ctx context.Context, out map[string]string) {
	if st, err := m.state(ctx); err == nil {
		out["zookeeper.version"] = st.version
	}
	if text, err := m.word(ctx, "envi"); err == nil {
		if v, vendor := javaLine.FindStringSubmatch(text), vmLine.FindStringSubmatch(text); v != nil && vendor != nil {
			out["zookeeper.jvm"] = v[1] + " (" + vendor[1] + "), " + strings.Join(jvm[:3], " ")
		}
	}
	_ = m.visit(ctx, func(s *session) error {
		out["zookeeper.ttl-granted"] = s.terms().timeout.String()
		return nil
	})
}
