package scenarios

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Random is a schedule drawn from the seed: the `chaos:` section in the form `{random: [...], ...}`.
type Random struct {
	Faults  []RandomFault
	MeanGap time.Duration // mean of the exponential gaps between injections; default 5s
}

// RandomFault is one fault that may be drawn. All are equally likely; a fault that is named twice is drawn twice as
// often.
type RandomFault struct {
	Use    string
	On     []string // one of them is chosen each time; each may name several with commas between
	For    Span     // how long the fault stands
	Timed  bool     // the fault sets its own For instead of the schedule's
	Aimed  bool     // likewise its own On
	Params Params   // the fault's own keys; a value such as "10ms..50ms" is a range
}

// Span is a range of durations, both ends included.
type Span struct{ Low, High time.Duration }

// The promises that a schedule makes about its injections.
const (
	OverlapAny        = "any"         // faults may overlap
	OverlapOtherNodes = "other-nodes" // faults may overlap, but not on one node
	OverlapNever      = "never"       // each waits until all earlier ones are healed
	SpareMajority     = "majority"    // at any time more than half of the servers of each kind are unharmed
)

// Defaults of a random schedule.
const (
	DefaultMeanGap  = 5 * time.Second
	DefaultShortest = time.Second // how long a fault stands
	DefaultLongest  = 4 * time.Second
)

var (
	overlaps   = []string{OverlapNever, OverlapOtherNodes, OverlapAny}
	spares     = []string{SpareMajority}
	randomKeys = []string{"random", "mean_gap", "for", "on", "overlap", "spare"}
	plainKeys  = []string{"schedule", "overlap", "spare"}
)

// String writes the range as a scenario does.
func (s Span) String() string {
	if s.Low == s.High {
		return s.Low.String()
	}
	return s.Low.String() + between + s.High.String()
}

// String describes the draw in one line; "" without a random schedule.
func (r *Random) String() string {
	if r == nil {
		return ""
	}
	var out []string
	for _, f := range r.Faults {
		text := f.Use
		if p := f.Params.String(); p != "" {
			text += " (" + p + ")"
		}
		out = append(out, text+" on "+strings.Join(f.On, " or "))
	}
	return fmt.Sprintf("%s; mean gap %s", strings.Join(out, ", "), r.MeanGap)
}

// UnmarshalYAML accepts a duration, or two separated by dots.
func (s *Span) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err != nil {
		return errors.New("want a time such as 2s, or a range such as 1s..4s")
	}
	low, high, ranged := strings.Cut(text, between)
	if !ranged {
		high = low
	}
	for _, end := range []struct {
		text string
		into *time.Duration
	}{{low, &s.Low}, {high, &s.High}} {
		d, err := time.ParseDuration(end.text)
		if err != nil {
			return fmt.Errorf("want a time such as 2s, or a range such as 1s..4s; %q is neither", end.text)
		}
		*end.into = d
	}
	switch {
	case s.Low <= 0:
		return errors.New("a fault needs some time; write times above 0s")
	case s.High < s.Low:
		return fmt.Errorf("the range ends (%s) before it begins (%s)", high, low)
	}
	return nil
}

// choices is one target, or a list to choose one from.
type choices []string

// UnmarshalYAML accepts a word or a list of words.
func (c *choices) UnmarshalYAML(unmarshal func(any) error) error {
	const want = "want a target, or a list of targets to choose one from"
	list, err := words(unmarshal, want)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(w string) bool { return strings.TrimSpace(w) == "" }) {
		return errors.New(want)
	}
	*c = list
	return nil
}

// chaosMap reads a `chaos:` section that is a map: a random schedule, or a plain one with promises.
func (r chaosReader) chaosMap(s *Scenario, m *ast.MappingNode) error {
	if entry(m, "random") == nil && entry(m, "schedule") == nil {
		return r.errorf("chaos", "is a list of faults, or a map with random (faults to draw from) or schedule (the list)")
	}
	keys := randomKeys
	if entry(m, "schedule") != nil {
		keys = plainKeys
	}
	for _, v := range m.Values {
		if !slices.Contains(keys, keyOf(v)) {
			return unknownKey(r.src, v, "chaos", keys)
		}
	}
	for key, into := range map[string]*string{"overlap": &s.Overlap, "spare": &s.Spare} {
		valid := overlaps
		if key == "spare" {
			valid = spares
		}
		v := entry(m, key)
		if v == nil {
			continue
		}
		word, ok := textOf(v.Value)
		if !ok || !slices.Contains(valid, word) {
			return r.errorf(join("chaos", key), "%s is not known; %s", shown(v.Value), instead(word, valid))
		}
		*into = word
	}
	if v := entry(m, "schedule"); v != nil {
		list, err := r.maps(v, "chaos.schedule")
		if err != nil {
			return err
		}
		return r.entries(s, list, "chaos.schedule")
	}
	if s.Overlap == "" {
		s.Overlap = OverlapNever
	}
	return r.random(s, m)
}

// scheduleKeys are the settings of a random schedule that apply to every drawn fault.
type scheduleKeys struct {
	MeanGap time.Duration `yaml:"mean_gap"`
	For     Span
	On      choices
}

// drawnKeys are the keys of a fault to draw that do not belong to the fault itself.
type drawnKeys struct {
	Use string
	On  choices
	For Span
}

// writtenKeys are keys for schedules that are written down.
var writtenKeys = []string{"at", "every", "jitter"}

// random reads the settings of a random schedule.
func (r chaosReader) random(s *Scenario, m *ast.MappingNode) error {
	k := scheduleKeys{MeanGap: DefaultMeanGap, For: Span{DefaultShortest, DefaultLongest}}
	own := mapping(m, slices.DeleteFunc(slices.Clone(m.Values), func(v *ast.MappingValueNode) bool {
		return !slices.Contains(keysOf(fieldsOf(reflect.TypeFor[scheduleKeys]())), keyOf(v))
	}))
	if err := decode(r.src, own, "chaos", &k, nil); err != nil {
		return err
	}
	if k.On == nil {
		k.On = choices{"one"}
	}
	switch {
	case k.MeanGap < time.Millisecond:
		return r.errorf("chaos.mean_gap", "injections are due on whole milliseconds; write at least 1ms")
	case s.Run.For > 0 && k.MeanGap >= s.Run.For:
		return r.errorf("chaos.mean_gap",
			"%s is not before the end of the run (run.for: %s): there would be almost no injections", k.MeanGap, s.Run.For)
	case s.Run.For > 0 && k.For.Low >= s.Run.For:
		return r.errorf("chaos.for", "%s is not before the end of the run (run.for: %s)", k.For.Low, s.Run.For)
	}
	s.Random = &Random{MeanGap: k.MeanGap}
	v := entry(m, "random")
	seq, ok := v.Value.(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		return r.errorf("chaos.random", "want a list of faults, such as [pause, {use: clock-jump, by: 60s}]")
	}
	for i, n := range seq.Values {
		f, err := r.randomFault(n, item("chaos.random", i), s.Run.For)
		if err != nil {
			return err
		}
		if !f.Timed {
			f.For = k.For
		}
		if f.On == nil {
			f.On = k.On
		}
		s.Random.Faults = append(s.Random.Faults, f)
	}
	return nil
}

// randomFault reads a fault's name, or a map with its keys.
func (r chaosReader) randomFault(n ast.Node, path string, runFor time.Duration) (RandomFault, error) {
	if word, ok := textOf(n); ok {
		return RandomFault{Use: word}, nil
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return RandomFault{}, r.errorf(path,
			"%s is not a fault: want a name, or a map such as {use: pause, on: leader, for: 1s..4s}", shown(n))
	}
	var k drawnKeys
	p, err := r.own(m, path, &k)
	if err != nil {
		return RandomFault{}, err
	}
	for _, key := range writtenKeys {
		if slices.Contains(p.Keys(), key) {
			return RandomFault{}, r.errorf(join(path, key),
				"is for a written schedule; here the times are random (mean_gap)")
		}
	}
	switch {
	case k.Use == "":
		return RandomFault{}, r.missing(join(path, "use"), "the name of a fault, such as pause")
	case runFor > 0 && k.For.Low >= runFor:
		return RandomFault{}, r.errorf(join(path, "for"), "%s is not before the end of the run (run.for: %s)",
			k.For.Low, runFor)
	}
	return RandomFault{Use: k.Use, On: k.On, For: k.For, Timed: entry(m, "for") != nil, Aimed: k.On != nil, Params: p},
		nil
}
