package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/figure"
)

// The answers of a cell.
const (
	Yes   = "yes"
	No    = "no"
	Never = "does-not-apply"
)

// Cell is the result of one fault in one column with one provider.
type Cell struct {
	Provider string `json:"provider"`
	Fault    string `json:"fault"`
	Node     string `json:"node"`   // server, client, resource or link
	Answer   string `json:"answer"` // yes if any way works; else no or does-not-apply
	Ways     []way  `json:"ways,omitempty"`
}

// way is the result of one way to inject a fault.
type way struct {
	Keys   string `json:"keys,omitempty"` // keys of the fault, as in a scenario
	Answer string `json:"answer"`         // as in a cell
	// the mechanism, if there are several: netem, queue, tbf, vdso, faketime
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`   // why it does not work
	Evidence string    `json:"evidence,omitempty"` // of the receipt, if it was tried
	Healed   string    `json:"healed,omitempty"`   // of the receipt of the heal
	Hosts    []string  `json:"hosts,omitempty"`    // of a swarm: hosts of the targets
	At       time.Time `json:"at,omitzero"`        // when it was tried
	Cached   bool      `json:"cached"`             // tried by an earlier doctor
}

// Word summarizes the result in a few words.
func (w way) Word() string {
	switch {
	case w.Answer == No:
		return "no: " + w.Reason
	case w.By != "":
		return "yes, by " + w.By
	}
	return w.Answer
}

// matrix fills all cells of a provider. It does not try what a run would refuse, nor repeat what this program has seen
// to work since the machine booted.
func (d *doctor) matrix(ctx context.Context, p cluster.Provider, fresh bool) ([]Cell, error) {
	list, err := attempts()
	if err != nil {
		return nil, err
	}
	cache, err := openTrialCache(ctx, p)
	if err != nil {
		return nil, err
	}
	if fresh {
		cache.Ways = nil
	}
	ways, err := d.answers(ctx, p, list, cache)
	if err != nil {
		return nil, err
	}
	var out []Cell
	for _, k := range faults.Kinds() {
		if !slices.ContainsFunc(list, func(a attempt) bool { return a.kind.Name == k.Name }) {
			continue
		}
		for _, column := range columns {
			c := Cell{Provider: p.Name(), Fault: k.Name, Node: column, Answer: Never}
			for i, a := range list {
				if w, ok := ways[i]; ok && a.kind.Name == k.Name && a.column == column {
					c.add(w)
				}
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// add counts the result of a way.
func (c *Cell) add(w way) {
	rank := []string{Never, No, Yes}
	if slices.Index(rank, w.Answer) > slices.Index(rank, c.Answer) {
		c.Answer = w.Answer
	}
	if w.Answer != Never {
		c.Ways = append(c.Ways, w)
	}
}

// answers returns the result of each attempt, by its index in the list. An attempt that would repeat another one has
// no result.
func (d *doctor) answers(ctx context.Context, p cluster.Provider, list []attempt, cache *trialCache) (map[int]way,
	error,
) {
	ways, due := map[int]way{}, map[string][]attempt{}
	for i, a := range list {
		refused, err := d.refused(p, a)
		if err != nil {
			return nil, err
		}
		if refused != nil {
			ways[i] = *refused
			continue
		}
		if again, err := d.again(p, a); again || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		if w, worked := cache.Ways[a.id()]; worked {
			w.Cached = true
			ways[i] = w
			continue
		}
		due[a.testbed.name] = append(due[a.testbed.name], a)
	}
	for _, name := range []string{"plain", "disk", "redis"} {
		if len(due[name]) == 0 {
			continue
		}
		err := d.try(ctx, p, due[name], func(a attempt, w way) {
			w.Keys = a.keys
			ways[slices.IndexFunc(list, func(b attempt) bool { return a.id() == b.id() })] = w
			cache.note(a, w)
		})
		if err = errors.Join(err, cache.save()); err != nil {
			return nil, err
		}
	}
	return ways, nil
}

// again reports whether an attempt repeats the fault's default. That is so for the queue if netem is refused.
func (d *doctor) again(p cluster.Provider, a attempt) (bool, error) {
	const queue, netem = "engine: " + string(links.Queue), "engine: " + string(links.Netem)
	if !strings.Contains(a.keys, queue) {
		return false, nil
	}
	a.keys = strings.Replace(a.keys, queue, netem, 1)
	w, err := d.refused(p, a)
	return w != nil, err
}

// refused runs the checks that precede a run, and returns nil if the attempt may be made.
func (d *doctor) refused(p cluster.Provider, a attempt) (*way, error) {
	o, err := d.options(p, []attempt{a})
	if err != nil {
		return nil, err
	}
	_, err = engine.Check(o)
	var missing engine.MissingError
	var why chaos.Unavailable
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &why) && why.Never:
		return &way{Keys: a.keys, Answer: Never}, nil
	case errors.As(err, &missing) && missing.Err != nil:
		// The reason may have several lines.
		return &way{Keys: a.keys, Answer: No, Reason: cli.InOneLine(missing.Err)}, nil
	}
	return nil, err
}

// matrixText prints the cells as tables, one for each provider, with the reasons below.
func matrixText(cells []Cell) string {
	var b strings.Builder
	var notes []string
	var total sums
	for i := 0; i < len(cells); {
		provider := cells[i].Provider
		fmt.Fprintf(&b, "\nprovider %s\n", provider)
		table := figure.Table{append([]string{"  fault"}, columns...)}
		for ; i < len(cells) && cells[i].Provider == provider; i += len(columns) {
			row := []string{"  " + cells[i].Fault}
			for _, c := range cells[i : i+len(columns)] {
				row = append(row, c.text(&notes))
				for _, x := range c.Ways {
					total.add(x)
				}
			}
			table = append(table, row)
		}
		b.WriteString(table.Text())
	}
	if len(notes) > 0 {
		b.WriteByte('\n')
	}
	for i, n := range notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, n)
	}
	b.WriteString(total.text())
	return b.String()
}

// sums counts the ways that were tried, and those of them that an earlier doctor tried.
type sums struct {
	tried, cached int
	hosts         map[string]int // of a swarm: number of ways tried, by host
}

func (s *sums) add(w way) {
	for _, h := range w.Hosts {
		if s.hosts == nil {
			s.hosts = map[string]int{}
		}
		s.hosts[h]++
	}
	if !w.At.IsZero() {
		s.tried++
	}
	if w.Cached {
		s.cached++
	}
}

func (s *sums) text() string {
	var out string
	for i, h := range slices.Sorted(maps.Keys(s.hosts)) {
		if i == 0 {
			out += "\n"
		}
		out += fmt.Sprintf("tried on host %s: %d\n", h, s.hosts[h])
	}
	if s.cached == 0 {
		return out
	}
	return out + fmt.Sprintf("\n%d of the %d are cached successes of this program since the last boot; --fresh tries them again\n", s.cached, s.tried)
}

// text returns a cell of the table. Equal reasons share one note.
func (c Cell) text(notes *[]string) string {
	if c.Answer == Never {
		return "-"
	}
	var by, marks []string
	for _, w := range c.Ways {
		if w.Answer == Yes {
			if w.By != "" && !slices.Contains(by, w.By) {
				by = append(by, w.By)
			}
			continue
		}
		note := w.Reason
		if w.Keys != "" && c.Answer == Yes {
			note = w.Keys + ": " + note
		}
		i := slices.Index(*notes, note)
		if i < 0 {
			*notes = append(*notes, note)
			i = len(*notes) - 1
		}
		if mark := fmt.Sprintf("[%d]", i+1); !slices.Contains(marks, mark) {
			marks = append(marks, mark)
		}
	}
	text := c.Answer
	if len(by) > 0 {
		text = strings.Join(by, ", ")
	}
	return strings.Join(append([]string{text}, marks...), " ")
}
