package scenarios

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	js "github.com/google/jsonschema-go/jsonschema"

	"github.com/lockquake/lockquake/lock"
)

// SchemaAddress is where editors find the JSON Schema of scenarios.
const SchemaAddress = "https://raw.githubusercontent.com/lockquake/lockquake/main/docs/scenario.schema.json"

// Vocabulary lists the names that the keys of scenarios can have as values.
type Vocabulary struct {
	Backends, Workloads, Resources, Faults []Instance
	Quantities                             []Word   // counts and measures, for expect
	Numbered                               []string // prefixes of the measures of single injections
}

// Word is a name and its meaning.
type Word struct{ Name, Doc string }

// Instance is a name that a key `use` can have as its value.
type Instance struct {
	Word
	Words []string // locks of a backend, guards of a resource
	Own   any      // pointer to the struct of its own keys, with their defaults; nil: it has none
}

// clientDefinition is the part of the schema that describes a Client. It refers to itself.
const clientDefinition = "client"

// Schema returns the JSON Schema of a scenario as indented text. It is built from the structs that Parse fills and
// from the vocabulary. It checks each key's type and words. Parse alone checks relations between keys, such as the
// order of steps.
func Schema(v Vocabulary) ([]byte, error) {
	text, err := json.MarshalIndent(v.schema(), "", " ")
	return append(text, '\n'), err
}

// schema returns the schema in draft 7, which editors support best.
func (v Vocabulary) schema() *js.Schema {
	steps, expect := reference("steps"), reference("expect")
	s := object([]property{
		{"name", &js.Schema{Type: "string", Pattern: nameForm.String(), MaxLength: new(maxLength)}},
		{"claim", filled("What the run shows, in one or two sentences.")},
		{"source", filled("Source of the argument.")},
		{"about", reference("about")},
		{"backend", v.backend()},
		{"workload", v.workload()},
		{"chaos", v.chaos()},
		{"steps", steps},
		{"run", object(properties(Run{For: DefaultFor, Settle: DefaultSettle}))},
		{"hosts", object(append(properties(hostKeys{Rule: HostsSpread}), property{"rule", oneOf(hostRules...)}))},
		{"expect", expect},
		{"properties", &js.Schema{Type: "object", AdditionalProperties: expect}},
		{"twins", twinsSchema(steps, expect)},
	}, "name", "claim", "backend")
	s.Schema, s.ID, s.Title = "http://json-schema.org/draft-07/schema#", SchemaAddress, "A scenario of lockquake"
	s.AnyOf = []*js.Schema{{Required: []string{"workload"}}, {Required: []string{"steps"}}}
	s.Definitions = map[string]*js.Schema{
		clientDefinition: object(properties(Client{})), "about": v.about(), "expect": v.expect(), "step": v.step(),
		"steps":     {Type: "array", Items: reference("step")},
		"injection": section(v.Faults, "use", properties(injectionKeys{}), "on"),
	}
	return s
}

func (v Vocabulary) backend() *js.Schema {
	s := section(v.Backends, "use", append(properties(defaultBackend),
		property{"client", reference(clientDefinition)}))
	return worded(s, "lock", v.Backends)
}

func (v Vocabulary) workload() *js.Schema {
	protected := section(v.Resources, "use", properties(Resource{}))
	worded(protected, "guard", v.Resources)
	common := append(properties(Workload{Clients: 1, Users: 1, Timeout: DefaultTimeout}),
		property{"check", oneOf(looks...)}, property{"client", reference(clientDefinition)},
		property{"resource", protected})
	s := section(v.Workloads, "use", common)
	s.Required = nil // a scenario may have steps only
	s.AllOf = append(s.AllOf, &js.Schema{
		If:   &js.Schema{Not: &js.Schema{Required: []string{"use"}}},
		Then: object(common),
	})
	return s
}

// chaos returns the schema of `chaos:`: a list, or a map with further settings.
func (v Vocabulary) chaos() *js.Schema {
	list := &js.Schema{Type: "array", Items: reference("injection")}
	promises := []property{{"overlap", oneOf(overlaps...)}, {"spare", oneOf(spares...)}}
	fault := section(v.Faults, "use", properties(drawnKeys{}))
	for _, branch := range fault.AllOf {
		drawn(branch.Then)
	}
	random := &js.Schema{
		Type: "array", MinItems: new(1),
		Items: &js.Schema{AnyOf: []*js.Schema{oneOf(namesOf(v.Faults)...), fault}},
	}
	return &js.Schema{AnyOf: []*js.Schema{
		list,
		object(append(promises, property{"schedule", list}), "schedule"),
		object(slices.Concat(properties(scheduleKeys{MeanGap: DefaultMeanGap}), promises,
			[]property{{"random", random}}), "random"),
	}}
}

// drawn allows ranges as the values of a fault's own keys, and leaves out the keys of the time.
func drawn(fault *js.Schema) {
	common := append(keysOf(fieldsOf(reflect.TypeFor[drawnKeys]())), "use")
	for name, s := range fault.Properties {
		switch {
		case slices.Contains(writtenKeys, name):
			delete(fault.Properties, name)
		case !slices.Contains(common, name):
			fault.Properties[name] = &js.Schema{AnyOf: []*js.Schema{
				s,
				{Type: "string", Pattern: `[0-9]\.\.[+-]?[0-9]`},
			}}
		}
	}
}

// about lists counts, measures and events.
func (v Vocabulary) about() *js.Schema {
	names := eventNames()
	for _, q := range v.Quantities {
		names = append(names, q.Name)
	}
	return &js.Schema{
		Type: "array", Items: oneOf(names...),
		Description: "Counts, measures and events that headline, words and picture show first. Default: those of expect.",
	}
}

func (v Vocabulary) expect() *js.Schema {
	asked := func(pattern, doc string) *js.Schema {
		return &js.Schema{Types: []string{"string", "number"}, Pattern: pattern, Minimum: new(0.0), Description: doc}
	}
	form := expectForm.String()
	list := []property{
		{Judged, asked(form, "Number of judged grants, or of accesses in a run without a lock.")},
		{Bit, asked(`^\s*all\s*$|`+form, "Injections made that must have bitten: all, a number, or a share.")},
	}
	for _, q := range v.Quantities {
		list = append(list, property{q.Name, asked(form, q.Doc)})
	}
	s := object(list)
	numbered := "^(" + strings.Join(v.Numbered, "|") + ")[1-9][0-9]*$"
	s.PatternProperties = map[string]*js.Schema{numbered: asked(form, "The measure of one injection.")}
	return s
}

func twinsSchema(steps, expect *js.Schema) *js.Schema {
	twin := object([]property{
		{"claim", filled("What the variant shows.")},
		{"source", filled("Source of the argument.")},
		{"about", reference("about")},
		{"expect", expect},
		{"same", filled("Why one run may meet both the variant's and the story's expectations.")},
		{"set", &js.Schema{Type: "object", PropertyNames: &js.Schema{Pattern: `^(` + strings.Join(rootKeys, "|") +
			`)(\.|$)`}}},
		{"steps", steps},
	}, "claim", "expect")
	return &js.Schema{Type: "object", PropertyNames: &js.Schema{Pattern: nameForm.String()}, AdditionalProperties: twin}
}

// step returns the schema of a step, with a branch for each verb, each await and each fault, and one for each other
// kind of step.
func (v Vocabulary) step() *js.Schema {
	all := append(properties(rawStep{Step: Step{Within: DefaultWithin}}),
		property{"outcome", oneOf(outcomes...)}, property{"action", oneOf(actions...)},
		property{"mode", oneOf(lock.Exclusive.String(), lock.Shared.String())},
		property{"event", oneOf(eventNames()...)}, property{"object", oneOf(objects...)},
		property{"user", &js.Schema{Type: "string", Pattern: userForm.String()}})
	take := func(keys ...string) (out []property) {
		for _, p := range all {
			if slices.Contains(keys, p.name) {
				out = append(out, p)
			}
		}
		return out
	}
	s := &js.Schema{Type: "object", Properties: map[string]*js.Schema{
		"do": oneOf(verbs...), "await": oneOf(awaits...),
		"inject": oneOf(namesOf(v.Faults)...),
	}}
	for _, kind := range stepKinds {
		s.AnyOf = append(s.AnyOf, &js.Schema{Required: []string{kind}})
	}
	for _, verb := range verbs {
		keys := append([]string{"user", "within"}, keysOfVerb[verb]...)
		s.AllOf = append(s.AllOf, branch("do", Word{Name: verb}, take(keys...), append(needed[verb], "user")...))
	}
	for _, await := range awaits {
		s.AllOf = append(s.AllOf, branch("await", Word{Name: await}, take(append(keysOfAwait[await], "within")...),
			needed[await]...))
	}
	s.AllOf = append(s.AllOf, section(v.Faults, "inject", take("on", "as", "within"), "on").AllOf...)
	return also(also(s, "heal", take("heal", "within")), "observe", take("observe", "on", "every", "within"), "on")
}

// also adds keys to a map that apply if it has the given key.
func also(s *js.Schema, key string, list []property, must ...string) *js.Schema {
	s.AllOf = append(s.AllOf, &js.Schema{If: &js.Schema{Required: []string{key}}, Then: object(list, must...)})
	return s
}
