package scenarios

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// between separates the two ends of a range.
const between = ".."

// quantity is a number with an optional unit, such as 5, 0.25, -3, 10% or 200kbit.
var quantity = regexp.MustCompile(`^([+-]?)([0-9]+)(?:\.([0-9]+))?([A-Za-z%]*)$`)

// Settle returns the parameters with each range, such as "10ms..50ms", replaced by one value in it. A range has equal
// steps from its low to its high end. pick gets the number of the last step and returns a number from 0 to it.
// Integer arithmetic gives the same values for the same picks on any machine.
func (p Params) Settle(pick func(last int64) int64) (Params, error) {
	if p.node == nil {
		return p, nil
	}
	n, err := p.settled(p.node, p.path, pick)
	if err != nil {
		return Params{}, err
	}
	p.node = n.(*ast.MappingNode)
	return p, nil
}

func (p Params) settled(n ast.Node, path string, pick func(int64) int64) (ast.Node, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		out := mapping(n, nil)
		for _, v := range n.Values {
			value, err := p.settled(v.Value, join(path, keyOf(v)), pick)
			if err != nil {
				return nil, err
			}
			pair := *v
			pair.Value = value
			out.Values = append(out.Values, &pair)
		}
		return out, nil
	case *ast.SequenceNode:
		out := *n
		out.Values = nil
		for i, v := range n.Values {
			value, err := p.settled(v, item(path, i), pick)
			if err != nil {
				return nil, err
			}
			out.Values = append(out.Values, value)
		}
		return &out, nil
	}
	text, ok := textOf(n)
	low, high, ranged := strings.Cut(text, between)
	if !ok || !ranged || low == "" || !strings.ContainsAny(low[:1], "+-0123456789") {
		return n, nil
	}
	value, err := within(low, high, pick)
	if err != nil {
		return nil, p.src.at(tokenOf(n), path, "%v", err)
	}
	return p.inPlaceOf(n, value)
}

// inPlaceOf returns a scalar whose errors point at the place of the range.
func (p Params) inPlaceOf(n ast.Node, value string) (ast.Node, error) {
	out, err := readNode(p.src, []byte(value))
	if err != nil {
		return nil, err
	}
	tok, old := tokenOf(out), tokenOf(n)
	tok.Position = old.Position
	if set, ok := p.src.sets[old]; ok {
		p.src.sets[tok] = set
	}
	return out, nil
}

// within picks a value between the two ends. Durations have steps of 1 ms (1 µs if an end is no multiple of that),
// whole numbers steps of 1. Others have steps of 0.001, or as fine as they are written.
func within(low, high string, pick func(int64) int64) (string, error) {
	a, errA := time.ParseDuration(low)
	b, errB := time.ParseDuration(high)
	if errA == nil && errB == nil {
		step := time.Millisecond
		if a%step != 0 || b%step != 0 {
			step = time.Microsecond
		}
		if b < a {
			return "", fmt.Errorf("the range ends (%s) before it begins (%s)", high, low)
		}
		if b-a < 0 {
			return "", fmt.Errorf("the ends of %q are too far apart", low+between+high)
		}
		return (a + time.Duration(pick(int64((b-a)/step)))*step).String(), nil
	}
	x, y := quantity.FindStringSubmatch(low), quantity.FindStringSubmatch(high)
	if x == nil || y == nil {
		return "", fmt.Errorf("%q is not a range: want two times or two numbers, such as 10ms..50ms, 1.05..1.2 or 1%%..5%%", low+between+high)
	}
	if x[4] != y[4] {
		return "", fmt.Errorf("the ends of %q have different units; write both in the same", low+between+high)
	}
	digits := max(len(x[3]), len(y[3]))
	if digits > 0 {
		digits = max(digits, 3)
	}
	i, errA := scaled(x, digits)
	j, errB := scaled(y, digits)
	if errA != nil || errB != nil {
		return "", fmt.Errorf("the ends of %q are too large", low+between+high)
	}
	if j-i < 0 && j > i {
		return "", fmt.Errorf("the ends of %q are too far apart", low+between+high)
	}
	if j < i {
		return "", fmt.Errorf("the range ends (%s) before it begins (%s)", high, low)
	}
	return unscaled(i+pick(j-i), digits) + x[4], nil
}

// scaled returns a quantity as a whole number of its last digit.
func scaled(q []string, digits int) (int64, error) {
	return strconv.ParseInt(q[1]+q[2]+q[3]+strings.Repeat("0", digits-len(q[3])), 10, 64)
}

func unscaled(v int64, digits int) string {
	if digits == 0 {
		return strconv.FormatInt(v, 10)
	}
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	text := fmt.Sprintf("%0*d", digits+1, v)
	return sign + text[:len(text)-digits] + "." + text[len(text)-digits:]
}
