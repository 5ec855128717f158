// Package sweep measures points: runs of one scenario that differ in some keys, on servers kept from run to run, each
// with a warm-up. Its output is the input of results/capacity. Verbs call it; it does not depend on the command line.
//
// A sweep has axes. An axis has choices, each of which sets keys of the scenario. Every combination of choices is a
// point. Each point is run several times, in an order drawn from the seed.
package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/results/capacity"
)

// Axis is a parameter that a sweep varies.
type Axis struct {
	Name    string // for messages, such as users
	Choices []Choice
}

// Choice is one value on an axis.
type Choice struct {
	Set []string // the keys to set in the scenario, as With takes them
	// Note writes into the point's setting what the scenario itself does not show; nil if it shows everything.
	Note func(*capacity.Setting)
	// Server says that servers cannot be kept if the value changes.
	Server bool
	// Once says that one run of its points is enough.
	Once bool
}

// most is the largest number of values on one axis.
const most = 1000

// Numbers reads a list of whole numbers such as "1,2,4..256". Two dots double the number before them until the one
// after them is reached, which is always included: 4..256 is 4, 8, 16, 32, 64, 128, 256.
func Numbers(text string) ([]int, error) {
	var out []int
	for _, word := range strings.Split(text, ",") {
		from, to, span := strings.Cut(strings.TrimSpace(word), "..")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && span {
			last, err = strconv.Atoi(to)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is neither a whole number nor a range such as 4..256", strings.TrimSpace(word))
		case first < 1:
			return nil, fmt.Errorf("%d is too few; at least 1", first)
		case last < first:
			return nil, fmt.Errorf("%s is descending; write the lower number first", word)
		case last > 1<<16:
			return nil, fmt.Errorf("%d is too many; at most %d", last, 1<<16)
		}
		for n := first; n < last; n *= 2 {
			out = append(out, n)
		}
		out = append(out, last)
	}
	return distinct(out)
}

// Durations reads a list of durations such as "0,1ms,5ms".
func Durations(text string) ([]time.Duration, error) {
	var out []time.Duration
	for _, word := range strings.Split(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(word))
		if err != nil || d < 0 {
			return nil, fmt.Errorf("%q is not a duration: 0, or a number and a unit, such as 5ms", strings.TrimSpace(word))
		}
		out = append(out, d)
	}
	return distinct(out)
}

// Rates reads a list of rates, in arrivals a second.
func Rates(text string) ([]float64, error) {
	var out []float64
	for _, word := range strings.Split(text, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		switch {
		case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
			return nil, fmt.Errorf("%q is not a rate: arrivals per second, such as 500", strings.TrimSpace(word))
		case f <= 0:
			return nil, fmt.Errorf("%s is not a rate: it must be above 0; omit it for a closed loop",
				strings.TrimSpace(word))
		}
		out = append(out, f)
	}
	return distinct(out)
}

// Asked returns the axis of rates to test against the objective. One run without a rate measures the most that the
// lock does.
func Asked(list []float64) Axis {
	a, _ := Keys("rate", "workload.rate", list, nil)
	a.Choices = append([]Choice{{Once: true}}, a.Choices...)
	return a
}

// Words splits a list at its commas, except within brackets, braces or quotes.
func Words(text string) ([]string, error) {
	var out []string
	depth, from, quote := 0, 0, rune(0)
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune("[{", r):
			depth++
		case strings.ContainsRune("]}", r):
			depth--
		case r == ',' && depth == 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	out = append(out, strings.TrimSpace(text[from:]))
	if slices.Contains(out, "") {
		return nil, fmt.Errorf("%q has a value that is empty", text)
	}
	return distinct(out)
}

// distinct rejects duplicate values: their samples would fall into one point.
func distinct[T comparable](list []T) ([]T, error) {
	if len(list) > most {
		return nil, fmt.Errorf("%d values: an axis has at most %d", len(list), most)
	}
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return nil, fmt.Errorf("%v is listed twice", v)
		}
	}
	return list, nil
}

// Users returns the axis of the number of users. They are spread evenly over client processes: the largest number
// that divides them, up to the maximum.
func Users(text string, processes int) (Axis, error) {
	list, err := Numbers(text)
	return axis("users", list, err, func(n int) Choice {
		clients := min(n, max(processes, 1))
		for n%clients != 0 {
			clients--
		}
		return Choice{Set: []string{
			fmt.Sprintf("workload.clients=%d", clients),
			fmt.Sprintf("workload.users=%d", n/clients),
		}}
	})
}

// Locks returns the axis of the number of locks. Each cycle takes one at random; own is one for each user.
func Locks(text string) (Axis, error) {
	words, err := Words(text)
	out := Axis{Name: "locks"}
	for _, w := range words {
		if w == "own" {
			out.Choices = append(out.Choices, Choice{
				Set:  []string{"workload.locks=1", "workload.own_locks=true"},
				Note: func(s *capacity.Setting) { s.Own, s.Locks = true, 1 },
			})
			continue
		}
		list, err := Numbers(w)
		if err != nil {
			return out, wrong("locks", err)
		}
		for _, n := range list {
			out.Choices = append(out.Choices, Choice{Set: []string{fmt.Sprintf("workload.locks=%d", n)}})
		}
	}
	return out, wrong("locks", err)
}

// Keys returns the axis of a key of the scenario that holds a duration or a number.
func Keys[T any](name, key string, list []T, err error) (Axis, error) {
	return axis(name, list, err, func(v T) Choice {
		return Choice{Set: []string{fmt.Sprintf("%s=%v", key, v)}, Server: strings.HasPrefix(key, "backend.") &&
			key != "backend.ttl"}
	})
}

// The bounds of an added round trip: those of the fault that adds it.
const (
	leastTrip = time.Millisecond
	mostTrip  = 5 * time.Second
)

// Trips returns the axis of the round trip added between clients and servers; 0 adds none. All of the delay is on the
// way to the servers.
func Trips(text string) (Axis, error) {
	list, err := Durations(text)
	for _, d := range list {
		if err == nil && d != 0 && (d < leastTrip || d > mostTrip) {
			err = fmt.Errorf("%v cannot be added: 0, or from %v to %v", d, leastTrip, mostTrip)
		}
	}
	return axis("rtt", list, err, func(d time.Duration) Choice {
		c := Choice{Note: func(s *capacity.Setting) { s.RTT = int64(d) }}
		if d > 0 {
			c.Set = []string{fmt.Sprintf("chaos=[{use: delay, on: clients, at: 0s, by: %v, direction: out}]", d)}
		}
		return c
	})
}

// Policies lists how a polling lock can wait for its next attempt, by name on the axis of retry.
var Policies = map[string]string{
	"spin":        "{delay: 0s, jitter: 0}",
	"fixed":       "{delay: 10ms, jitter: 0}",
	"jittered":    "{delay: 10ms, jitter: 0.5}",
	"exponential": "{delay: 1ms, jitter: 0.5, growth: 2, most: 100ms}",
}

// defaultPolicy is the polling lock's own policy; the file's service names it.
const defaultPolicy = "default"

// Retries returns the axis of how a polling lock waits for its next attempt.
func Retries(text string) (Axis, error) {
	words, err := Words(text)
	for _, w := range words {
		if _, ok := Policies[w]; err == nil && !ok {
			err = fmt.Errorf("there is no policy %q; there are spin, fixed, jittered and exponential", w)
		}
	}
	return axis("retry", words, err, func(w string) Choice {
		return Choice{Set: []string{"backend.retry=" + Policies[w]}, Note: func(s *capacity.Setting) { s.Retry = w }}
	})
}

// Other returns the axis of any key of the scenario, given as KEY=A,B,C.
func Other(text string) (Axis, error) {
	key, values, ok := strings.Cut(text, "=")
	if key = strings.TrimSpace(key); !ok || key == "" {
		return Axis{}, fmt.Errorf("sweep: %q is not of the form KEY=A,B,C, such as workload.think=0s,5ms", text)
	}
	words, err := Words(values)
	return axis("sweep", words, err, func(w string) Choice {
		set := key + "=" + w
		return Choice{
			Set: []string{set}, Server: strings.HasPrefix(key, "backend"),
			Note: func(s *capacity.Setting) { s.Set = strings.TrimSpace(s.Set + " " + set) },
		}
	})
}

func axis[T any](name string, list []T, err error, choice func(T) Choice) (Axis, error) {
	if err != nil {
		return Axis{}, wrong(name, err)
	}
	a := Axis{Name: name}
	for _, v := range list {
		a.Choices = append(a.Choices, choice(v))
	}
	return a, nil
}

func wrong(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
