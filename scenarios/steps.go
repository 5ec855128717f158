package scenarios

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
)

// NotOK is the outcome of a step that must not succeed: fail and info meet it, ok makes the run fail.
const NotOK = "not-ok"

// The lock objects for a release-unheld: the user's own, or another one in the same process.
const (
	OwnObject   = "own"
	OtherObject = "other"
)

// The keys and words of steps.
var (
	stepKinds = []string{"do", "inject", "heal", "await", "observe"}
	verbs     = []string{
		"acquire", "read", "check", "write", "release", "renew", "close", "arm", "continue", "cancel",
		"release-unheld",
	}
	outcomes = []string{"ok", "fail", "info", NotOK, "any"}
	actions  = []string{"wait", "die"}
	modes    = []string{lock.Exclusive.String(), lock.Shared.String()}
	objects  = []string{OwnObject, OtherObject}

	// keysOfVerb are the keys that a do step takes beside do, user and within.
	keysOfVerb = map[string][]string{
		"acquire": {"lock", "mode", "reentrant", "outcome", "async"}, "read": {"lock", "outcome", "async"},
		"check": {"lock", "outcome", "async"}, "write": {"lock", "value", "plus", "outcome", "async"},
		"release": {"lock", "outcome", "async"}, "renew": {"lock", "outcome", "async"},
		"arm": {"point", "action", "async"}, "continue": {"point", "async"}, "cancel": {"outcome", "async"},
		"close": {"outcome", "async"}, "release-unheld": {"lock", "object", "outcome", "async"},
	}
	awaits = []string{"event", "validity-over", "fact", "point", "elapsed", "bitten", "led"}
	// keysOfAwait are the keys that an await takes beside await and within.
	keysOfAwait = map[string][]string{
		"event": {"event", "user", "lock"}, "validity-over": {"user", "lock"}, "fact": {"fact", "node", "is", "is_not"},
		"point": {"user", "point"}, "elapsed": {"for"}, "bitten": {"of"}, "led": {"of"},
	}
	needed = map[string][]string{
		"arm": {"point", "action"}, "continue": {"point"},
		"event": {"event", "user"}, "validity-over": {"user"}, "fact": {"fact", "node"}, "point": {"user", "point"},
		"elapsed": {"for"},
		"bitten":  {"of"}, "led": {"of"},
	}
)

// rawStep has every key of a step. Its targets may be a list.
type rawStep struct {
	Step `yaml:",inline"`
	On   targets
}

// stepsReader reads `steps:`.
type stepsReader struct{ document }

func (r stepsReader) steps(s *Scenario) error {
	list, err := r.list("steps")
	if err != nil {
		return err
	}
	for i, m := range list {
		step, err := r.step(m, item("steps", i))
		if err != nil {
			return err
		}
		s.Steps = append(s.Steps, step)
	}
	return r.order(s.Steps)
}

func (r stepsReader) step(m *ast.MappingNode, path string) (Step, error) {
	kind := ""
	for _, v := range m.Values {
		if !slices.Contains(stepKinds, keyOf(v)) {
			continue
		}
		if kind != "" {
			return Step{}, r.src.at(tokenOf(v.Key), path, "has %s and %s; a step is exactly one of %s", kind, keyOf(v),
				listed(stepKinds))
		}
		kind = keyOf(v)
	}
	if kind == "" {
		return Step{}, r.src.at(tokenOf(m), path, "has none of %s; a step is exactly one of them", listed(stepKinds))
	}
	raw, params, err := r.rawStep(m, path, kind)
	if err != nil {
		return Step{}, err
	}
	s := raw.Step
	s.On, s.Params = string(raw.On), params
	if tok := tokenOf(m); tok != nil && tok.Position != nil {
		s.Line = tok.Position.Line
	}
	if err := r.stepValues(m, s, path); err != nil {
		return Step{}, err
	}
	if s.Lock == "" && (s.Do != "" || s.Await == "event" || s.Await == "validity-over") {
		s.Lock = DefaultLock
	}
	return s, nil
}

// rawStep reads the keys that a step of that kind may have. Only an inject step has further ones: its fault's.
func (r stepsReader) rawStep(m *ast.MappingNode, path, kind string) (rawStep, Params, error) {
	raw := rawStep{Step: Step{Within: DefaultWithin}}
	text, _ := textOf(entry(m, kind).Value)
	keys := []string{kind, "within"}
	switch kind {
	case "inject":
		keys = append(keys, "on", "as")
	case "observe":
		keys = append(keys, "on", "every")
	case "do":
		if !slices.Contains(verbs, text) {
			return raw, Params{}, r.errorf(join(path, "do"), "%q is not an operation of a user; %s", text,
				instead(text, verbs))
		}
		keys = append(append(keys, "user"), keysOfVerb[text]...)
		raw.Outcome = "ok"
	case "await":
		if !slices.Contains(awaits, text) {
			return raw, Params{}, r.errorf(join(path, "await"), "%q cannot be awaited; %s", text, instead(text, awaits))
		}
		keys = append(keys, keysOfAwait[text]...)
		if text == "fact" && entry(m, "is_not") == nil {
			raw.Is = "true"
		}
	}
	var known, rest []*ast.MappingValueNode
	for _, v := range m.Values {
		switch {
		case slices.Contains(keys, keyOf(v)):
			known = append(known, v)
		case kind != "inject":
			if slices.Contains(keysOf(fieldsOf(reflect.TypeFor[rawStep]())), keyOf(v)) {
				return raw, Params{}, r.src.at(tokenOf(v.Key), path, "%s does not apply to this step; %s %s takes %s",
					keyOf(v), kind, text, strings.Join(keys, ", "))
			}
			return raw, Params{}, unknownKey(r.src, v, path, keys)
		default:
			rest = append(rest, v)
		}
	}
	if err := decode(r.src, mapping(m, known), path, &raw, nil); err != nil {
		return raw, Params{}, err
	}
	raw.Demanded = kind == "do" && entry(m, "outcome") != nil && raw.Outcome == "ok"
	for _, key := range needed[text] {
		if entry(m, key) == nil {
			return raw, Params{}, r.src.at(tokenOf(m), path, "%s %s needs %s", kind, text, key)
		}
	}
	if len(rest) == 0 {
		return raw, Params{}, nil
	}
	return raw, Params{node: mapping(m, rest), src: r.src, path: path, common: keys}, nil
}

// stepValues checks the values of one step.
func (r stepsReader) stepValues(m *ast.MappingNode, s Step, path string) error {
	oneOf := func(key, value string, valid []string) error {
		if entry(m, key) == nil || slices.Contains(valid, value) {
			return nil
		}
		return r.errorf(join(path, key), "%q is not known; %s", value, instead(value, valid))
	}
	if err := oneOf("outcome", s.Outcome, outcomes); err != nil {
		return err
	}
	if err := oneOf("action", s.Action, actions); err != nil {
		return err
	}
	if err := oneOf("mode", s.Mode, modes); err != nil {
		return err
	}
	if err := oneOf("object", s.Object, objects); err != nil {
		return err
	}
	if err := oneOf("event", s.Event, eventNames()); err != nil {
		return err
	}
	switch {
	case s.Within == 0:
		return r.errorf(join(path, "within"), "an operation needs some time; write a time above 0s")
	case s.Do == "write" && (entry(m, "value") == nil) == (entry(m, "plus") == nil):
		return r.src.at(tokenOf(m), path,
			"do write needs value (the new value) or plus (the difference to the value that was read)")
	case entry(m, "plus") != nil && s.Plus == 0:
		return r.errorf(join(path, "plus"), "0 changes nothing; write a number such as 1")
	case s.Do != "" && s.User == "":
		return r.src.at(tokenOf(m), path, "do %s needs user: a name such as A", s.Do)
	case entry(m, "user") != nil && !userForm.MatchString(s.User):
		return r.errorf(join(path, "user"),
			"%q is not a user's name: letters and digits, beginning with an upper-case letter, such as A", s.User)
	case entry(m, "lock") != nil && !isLockName(s.Lock):
		return r.errorf(join(path, "lock"),
			"%q is not the name of a lock: 1 to 250 visible characters; a workload's locks are lock-0, lock-1, ...", s.Lock)
	case entry(m, "is") != nil && entry(m, "is_not") != nil:
		return r.errorf(join(path, "is_not"), "conflicts with is; write one of them")
	case s.Observe != "" && s.On == "":
		return r.src.at(tokenOf(m), path, "observe %s needs on: the nodes to ask", s.Observe)
	case entry(m, "every") != nil && s.Every <= 0:
		return r.errorf(join(path, "every"), "an interval of zero would never pause; write a time above 0s")
	case s.Await == "elapsed" && s.For == 0:
		return r.errorf(join(path, "for"), "a wait needs some time; write a time above 0s")
	case s.Await == "elapsed" && s.For >= s.Within:
		if entry(m, "within") != nil {
			return r.errorf(join(path, "within"), "%s is over before %s have elapsed", s.Within, s.For)
		}
		return r.errorf(join(path, "for"), "%s is longer than the step's deadline; write within as well", s.For)
	}
	for _, key := range []string{
		"inject", "heal", "observe", "on", "as", "of", "point", "fact", "node", "is",
		"is_not",
	} {
		if v := entry(m, key); v != nil {
			if text, ok := textOf(v.Value); ok && strings.TrimSpace(text) == "" {
				return r.src.at(tokenOf(v.Value), join(path, key), "is empty")
			}
		}
	}
	if s.Inject != "" && s.On == "" {
		return r.src.at(tokenOf(m), path, "inject %s needs on: a node, a user or a selector", s.Inject)
	}
	return nil
}

// isLockName reports whether a text has 1 to 250 visible characters. A regular expression for this would cost 10 MB
// at each start of each client.
func isLockName(s string) bool {
	n := utf8.RuneCountInString(s)
	return 0 < n && n <= 250 && !strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.C, r) })
}

// IsEvent reports whether a name is that of a history event, such as "renew ok" or "lost".
func IsEvent(name string) bool { return slices.Contains(eventNames(), name) }

// eventNames lists the history events that an await can wait for.
func eventNames() []string {
	var out []string
	for _, k := range []history.Kind{
		history.Acquire, history.Release, history.Renew, history.Check, history.Read,
		history.Write, history.Close, history.ReleaseUnheld,
	} {
		for _, p := range []history.Phase{history.Invoke, history.Ok, history.Fail, history.Info} {
			out = append(out, k.String()+" "+p.String())
		}
	}
	for _, k := range []history.Kind{history.EffectRead, history.EffectWrite} {
		out = append(out, k.String()+" "+history.Ok.String(), k.String()+" "+history.Fail.String())
	}
	return append(out, history.Renewed.String(), history.Lost.String(), history.Dead.String())
}
