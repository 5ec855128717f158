package script

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/scenarios"
)

// caster draws keys of a fault.
type caster struct {
	dice
	fault Fault
}

// keys draws keys: those of one of the fault's alternatives, with some values changed. A value that the fault would
// reject stays unchanged.
func (d caster) keys() string {
	return d.changed(settled(d.fault.Keys[d.r.IntN(len(d.fault.Keys))], func(last int64) int64 {
		return d.r.Int64N(last + 1)
	}))
}

// changed replaces some of the values by others of their type.
func (d caster) changed(keys string) string {
	pairs := pairsOf(keys)
	for i := range pairs {
		if d.chance(0.5) {
			continue
		}
		was := pairs[i].value
		pairs[i].value = d.value(pairs[i])
		if _, err := newFault(d.fault.Kind, join(pairs)); err != nil {
			pairs[i].value = was
		}
	}
	return join(pairs)
}

// pair is a key with its value, both as YAML.
type pair struct{ key, value string }

// pairsOf splits keys into pairs. Values with commas in them stay whole.
func pairsOf(keys string) (out []pair) {
	params, err := scenarios.ParseParams("{" + keys + "}")
	if err != nil {
		return nil
	}
	rest := params.String()
	names := params.Keys()
	for i, key := range names {
		text := strings.TrimPrefix(rest, key+": ")
		value := text
		if i+1 < len(names) {
			value, rest, _ = strings.Cut(text, ", "+names[i+1]+": ")
			rest = names[i+1] + ": " + rest
		}
		out = append(out, pair{key, value})
	}
	return out
}

func join(pairs []pair) string {
	var out []string
	for _, p := range pairs {
		out = append(out, p.key+": "+p.value)
	}
	return strings.Join(out, ", ")
}

// settle parses keys, with each range replaced by one of its values: pick draws its number, from 0 to last.
func settle(keys string, pick func(last int64) int64) (scenarios.Params, error) {
	params, err := scenarios.ParseParams("{" + keys + "}")
	if err != nil {
		return params, err
	}
	return params.Settle(pick)
}

// lowest picks the low end of a range.
func lowest(int64) int64 { return 0 }

// settled returns settled keys as YAML; keys that cannot be parsed stay as they are.
func settled(keys string, pick func(last int64) int64) string {
	params, err := settle(keys, pick)
	if err != nil {
		return keys
	}
	return params.String()
}

// amount matches a number with a unit other than time, such as 30%, 1mbit or 0.05.
var amount = regexp.MustCompile(`^([+-]?)([0-9]+(?:\.[0-9]+)?)([A-Za-z%]*)$`)

// value draws another value of the same type:
//   - a time about as long, or about the TTL;
//   - an amount about as large;
//   - a word that an alternative has for the same key.
func (d caster) value(p pair) string {
	text := strings.Trim(p.value, `"`)
	if t, err := time.ParseDuration(text); err == nil && t != 0 {
		sign, t := sign(text), t.Abs()
		if d.chance(0.5) {
			t = d.between(t/4, 8*t)
		} else {
			t = d.between(d.ttl/8, 8*d.ttl)
		}
		if sign != "" && d.chance(0.5) {
			sign = map[string]string{"+": "-", "-": "+"}[sign]
		}
		return strconv.Quote(sign + round(t).String())
	}
	if m := amount.FindStringSubmatch(text); m != nil {
		return d.amount(p.key, m)
	}
	var words []string
	for _, keys := range d.fault.Keys {
		for _, other := range pairsOf(keys) {
			if other.key == p.key && !slices.Contains(words, other.value) {
				words = append(words, other.value)
			}
		}
	}
	if len(words) == 0 {
		return p.value
	}
	return words[d.r.IntN(len(words))]
}

// amount draws an amount of the same kind. It is at least a quarter of the smallest that an alternative has for the
// key, and at most the largest: more might not affect the target.
func (d caster) amount(key string, m []string) string {
	var all []float64
	for _, keys := range d.fault.Keys {
		for _, p := range pairsOf(keys) {
			if p.key != key {
				continue
			}
			for end := range strings.SplitSeq(strings.Trim(p.value, `"`), "..") {
				if x := amount.FindStringSubmatch(end); x != nil && x[3] == m[3] {
					v, _ := strconv.ParseFloat(x[2], 64) // the pattern matched a number
					all = append(all, v)
				}
			}
		}
	}
	if len(all) == 0 {
		return m[0]
	}
	low, high := max(slices.Min(all)/4, math.SmallestNonzeroFloat32), slices.Max(all)
	if d.fault.Kind.Slows { // little is enough for a target with little to do
		high = 2 * slices.Min(all)
	}
	v := low * math.Exp(d.r.Float64()*math.Log(high/low))
	if !strings.Contains(m[2], ".") {
		v = max(math.Round(v), 1)
	}
	return m[1] + strconv.FormatFloat(v, 'f', decimals(m[2]), 64) + m[3]
}

// decimals returns how many digits an amount has after its point.
func decimals(text string) int {
	if strings.Contains(text, ".") {
		return 3
	}
	return 0
}

func sign(text string) string {
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		return text[:1]
	}
	return ""
}
