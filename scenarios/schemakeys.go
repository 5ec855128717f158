package scenarios

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	js "github.com/google/jsonschema-go/jsonschema"
)

// property is a key of a map.
type property struct {
	name   string
	schema *js.Schema
}

// object returns the schema of a map with exactly these keys. Of two properties with one name the last counts.
func object(list []property, required ...string) *js.Schema {
	s := &js.Schema{
		Type: "object", Properties: map[string]*js.Schema{}, Required: required,
		AdditionalProperties: &js.Schema{Not: &js.Schema{}},
	}
	for _, p := range list {
		if s.Properties[p.name] == nil {
			s.PropertyOrder = append(s.PropertyOrder, p.name)
		}
		s.Properties[p.name] = p.schema
	}
	return s
}

// properties returns the keys of a struct, with its values as defaults.
func properties(with any) []property {
	v := reflect.Indirect(reflect.ValueOf(with))
	var list []property
	for _, f := range fieldsOf(v.Type()) {
		s := typeSchema(f.typ)
		s.Default = defaultOf(v.FieldByIndex(f.index))
		list = append(list, property{f.key, s})
	}
	return list
}

// defaultOf returns a default as JSON, or nil for a zero value or one that is no scalar.
func defaultOf(v reflect.Value) json.RawMessage {
	var plain any
	switch {
	case v.IsZero():
		return nil
	case v.Type() == durationType:
		plain = time.Duration(v.Int()).String()
	case v.Type() == sizeType:
		plain = Size(v.Int()).String()
	case v.Kind() == reflect.String:
		plain = v.String()
	case v.Kind() == reflect.Bool:
		plain = true
	case v.CanInt():
		plain = v.Int()
	case v.CanUint():
		plain = v.Uint()
	case v.CanFloat() && !reflect.PointerTo(v.Type()).Implements(readsItself):
		plain = v.Float()
	default:
		return nil
	}
	text, _ := json.Marshal(plain) // cannot fail
	return text
}

// typeSchema returns the schema that matches check for the type.
func typeSchema(t reflect.Type) *js.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == durationType:
		return &js.Schema{Type: "string", Pattern: `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$`}
	case t == sizeType:
		return &js.Schema{Type: "string", Pattern: sizeForm.String()}
	case t == reflect.TypeFor[Client]():
		return reference(clientDefinition)
	case reflect.PointerTo(t).Implements(readsItself):
		return &js.Schema{Types: []string{"string", "number", "array"}, Items: &js.Schema{Type: "string"}}
	case reflect.PointerTo(t).Implements(textReader):
		return &js.Schema{Types: []string{"string", "number"}}
	}
	switch t.Kind() {
	case reflect.String:
		return &js.Schema{Type: "string"}
	case reflect.Bool:
		return &js.Schema{Type: "boolean"}
	case reflect.Float32, reflect.Float64:
		return &js.Schema{Type: "number"}
	case reflect.Slice:
		return &js.Schema{Type: "array", Items: typeSchema(t.Elem())}
	case reflect.Map:
		return &js.Schema{Type: "object", AdditionalProperties: typeSchema(t.Elem())}
	case reflect.Struct:
		return object(properties(reflect.Zero(t).Interface()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &js.Schema{Type: "integer", Minimum: new(0.0)}
	}
	return &js.Schema{Type: "integer"}
}

// section returns the schema of a map in which a key names an instance. The instance's own keys join the common ones.
func section(list []Instance, by string, common []property, required ...string) *js.Schema {
	s := &js.Schema{
		Type: "object", Properties: map[string]*js.Schema{by: oneOf(namesOf(list)...)},
		Required: []string{by},
	}
	for _, i := range list {
		var own []property
		if i.Own != nil {
			own = properties(i.Own)
		}
		s.AllOf = append(s.AllOf, branch(by, i.Word, append(own, common...), required...))
	}
	return s
}

// branch returns the schema of a map if its key has the given word. additionalProperties sees only the keys beside
// it, so each branch lists all keys.
func branch(by string, word Word, list []property, required ...string) *js.Schema {
	is := func(doc string) *js.Schema {
		var c any = word.Name
		return &js.Schema{Const: &c, Description: doc}
	}
	list = append([]property{{by, is(word.Doc)}},
		slices.DeleteFunc(list, func(p property) bool { return p.name == by })...)
	return &js.Schema{
		If:   &js.Schema{Properties: map[string]*js.Schema{by: is("")}, Required: []string{by}},
		Then: object(list, required...),
	}
}

// worded restricts a key of a section to the words of the branch's instance.
func worded(s *js.Schema, key string, list []Instance) *js.Schema {
	for i, of := range list {
		s.AllOf[i].Then.Properties[key] = oneOf(of.Words...)
	}
	return s
}

func namesOf(list []Instance) (names []string) {
	for _, i := range list {
		names = append(names, i.Name)
	}
	return names
}

// filled returns the schema of a non-empty text.
func filled(doc string) *js.Schema {
	return &js.Schema{Type: "string", Pattern: `\S`, Description: doc}
}

func oneOf(list ...string) *js.Schema {
	s := &js.Schema{}
	for _, w := range list {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func reference(name string) *js.Schema { return &js.Schema{Ref: "#/definitions/" + name} }
