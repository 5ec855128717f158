package scenarios

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// targets is the target of a fault: one selector or a list of them, stored as one comma-separated text.
type targets string

// UnmarshalYAML accepts a word or a list of words.
func (t *targets) UnmarshalYAML(unmarshal func(any) error) error {
	list, err := words(unmarshal, "want a target, or a list of targets")
	if err != nil {
		return err
	}
	if len(list) > 1 && slices.ContainsFunc(list, func(w string) bool { return strings.Contains(w, " or ") }) {
		return errors.New("a list hits all of its targets; write alternatives as one text, such as leader or all")
	}
	*t = targets(strings.Join(list, ", "))
	return nil
}

// words reads a word or a non-empty list of words. Anything else is an error that says want.
func words(unmarshal func(any) error, want string) ([]string, error) {
	var value any
	if err := unmarshal(&value); err != nil {
		return nil, err
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var out []string
	for _, v := range list {
		word, ok := v.(string)
		if !ok {
			return nil, errors.New(want)
		}
		out = append(out, word)
	}
	if len(out) == 0 {
		return nil, errors.New(want)
	}
	return out, nil
}

// injectionKeys are the keys of a schedule entry that do not belong to its fault.
type injectionKeys struct {
	Use                          string
	On                           targets
	At, For, Every, Jitter, Held time.Duration
}

// chaosReader reads `chaos:`.
type chaosReader struct{ document }

// chaos reads the schedule: a list, or a map with further settings.
func (r chaosReader) chaos(s *Scenario) error {
	if v := entry(r.root, "chaos"); v != nil {
		if m, ok := v.Value.(*ast.MappingNode); ok {
			return r.chaosMap(s, m)
		}
	}
	list, err := r.list("chaos")
	if err != nil {
		return err
	}
	return r.entries(s, list, "chaos")
}

// entries reads the list of injections under path.
func (r chaosReader) entries(s *Scenario, list []*ast.MappingNode, under string) error {
	for i, m := range list {
		path := item(under, i)
		var k injectionKeys
		p, err := r.own(m, path, &k)
		if err != nil {
			return err
		}
		in := Injection{
			Use: k.Use, On: string(k.On), At: k.At, For: k.For, Every: k.Every, Jitter: k.Jitter,
			Held: k.Held, Params: p, Path: path,
		}
		if err := r.injection(in, path, s.Run.For); err != nil {
			return err
		}
		if entry(m, "for") != nil && k.For == 0 {
			return r.errorf(join(path, "for"), "a fault needs some time; write a time above 0s")
		}
		if entry(m, "every") != nil && k.Every == 0 {
			return r.errorf(join(path, "every"), "it would never end; write a time above 0s, or omit it for one injection")
		}
		s.Chaos = append(s.Chaos, in)
	}
	return nil
}

func (r chaosReader) injection(in Injection, path string, runFor time.Duration) error {
	switch {
	case in.Use == "":
		return r.missing(join(path, "use"), "the name of a fault, such as pause")
	case in.On == "":
		return r.missing(join(path, "on"),
			"the target: one, minority, majority, all, leader, followers, holder, clients or a node")
	case runFor > 0 && in.At+in.Jitter >= runFor:
		return r.errorf(join(path, "at"), "%s is not before the end of the run (run.for: %s)", in.At+in.Jitter, runFor)
	case in.Every > 0 && in.For+in.Jitter >= in.Every:
		return r.errorf(join(path, "every"),
			"%s is too soon: the previous one may last until %s after it was due (for and jitter)",
			in.Every, in.For+in.Jitter)
	}
	return nil
}
