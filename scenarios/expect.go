package scenarios

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// MinJudged is the default number of judged grants that a schedule needs for a zero to mean something. An expectation
// for "judged" overrides it.
const MinJudged = 100

// Judged is the name of the expectation on the number of judged grants.
const Judged = "judged"

// Bit is the name of the expectation on how many of the injections made have bitten: "all", a number, or a share.
const Bit = "bit"

var (
	expectForm = regexp.MustCompile(`^\s*(>=|<=|>|<|=|)\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ns|us|µs|ms|s|m|h|)\s*$`)
	countForm  = regexp.MustCompile(`^[a-z][a-z0-9]*([_.][a-z0-9]+)*$`)
)

func (r reader) expect(s *Scenario) error {
	m, err := r.section("expect")
	if err != nil {
		return err
	}
	if m != nil {
		for _, v := range m.Values {
			e, err := r.expectation(v, "expect")
			if err != nil {
				return err
			}
			s.Expect = append(s.Expect, e)
		}
	}
	return nil
}

// properties reads the questions about the lock: a count or measure for each.
func (r reader) properties(s *Scenario) error {
	m, err := r.section("properties")
	if m == nil || err != nil {
		return err
	}
	for _, v := range m.Values {
		path := join("properties", keyOf(v))
		by, err := r.mapping(v.Value, path, v)
		if err != nil {
			return err
		}
		if len(by.Values) != 1 {
			return r.src.at(tokenOf(v.Key), path, "wants one count or measure, such as {longest_wait_ms: %q}", ">3s")
		}
		e, err := r.expectation(by.Values[0], path)
		if err != nil {
			return err
		}
		s.Properties = append(s.Properties, Property{Name: keyOf(v), By: e})
	}
	return nil
}

func (r reader) expectation(v *ast.MappingValueNode, section string) (Expectation, error) {
	name := keyOf(v)
	path := join(section, name)
	if !countForm.MatchString(name) {
		return Expectation{}, r.src.at(tokenOf(v.Key), path,
			"is not the name of a count or measure, such as double_grants")
	}
	if v.Value == nil || v.Value.Type() == ast.NullType {
		return Expectation{}, r.src.at(tokenOf(v.Key), path, "has no value")
	}
	text, ok := textOf(v.Value)
	if t := v.Value.Type(); t == ast.IntegerType || t == ast.FloatType {
		text, ok = v.Value.GetToken().Value, true
	}
	if !ok {
		return Expectation{}, r.src.at(tokenOf(v.Value), path, "%s is not an expectation, such as %q, %q or %q",
			shown(v.Value), "0", ">=5", "<1s")
	}
	e, ok := ParseExpectation(name, text)
	if !ok {
		return e, r.src.at(tokenOf(v.Value), path,
			`%q is not an expectation: a comparison (=, <, <=, >, >=; none means =), a number, and a unit (none, %%, or of time), such as "0", ">=5", "<1s" or ">5%%"`, text)
	}
	return e, nil
}

// ParseExpectation reads one expectation, such as ">=5", "<1s" or "0".
func ParseExpectation(name, text string) (Expectation, bool) {
	if name == Bit && strings.TrimSpace(text) == "all" {
		return Expectation{Name: Bit, Op: ">=", Value: 100, Unit: "%", Text: "all"}, true
	}
	m := expectForm.FindStringSubmatch(text)
	if m == nil {
		return Expectation{}, false
	}
	e := Expectation{Name: name, Op: m[1], Unit: m[3], Text: strings.TrimSpace(text)}
	if e.Op == "" {
		e.Op = "="
	}
	value, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return Expectation{}, false
	}
	if e.Unit != "" && e.Unit != "%" {
		d, err := time.ParseDuration(m[2] + e.Unit)
		if err != nil {
			return Expectation{}, false
		}
		value, e.Unit = float64(d)/float64(time.Millisecond), "ms"
	}
	e.Value = value
	return e, true
}

// Free reports whether every count meets the expectation: the scenario names the count but bounds nothing.
func (e Expectation) Free() bool { return e.Op == ">=" && e.Value == 0 }

// Holds reports whether a value, in the expectation's unit, meets it.
func (e Expectation) Holds(value float64) bool {
	switch e.Op {
	case "<":
		return value < e.Value
	case "<=":
		return value <= e.Value
	case ">":
		return value > e.Value
	case ">=":
		return value >= e.Value
	}
	return value == e.Value
}
