package scenarios

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

var durationType = reflect.TypeFor[time.Duration]()

// field is one key that a struct takes.
type field struct {
	key   string
	typ   reflect.Type
	index []int // within the struct
}

// known caches the result of fieldsOf by type: all scenarios together have some thousand steps.
var known sync.Map

// fieldsOf lists the keys of a struct as the YAML decoder sees them, in the struct's order. Callers do not change it.
func fieldsOf(t reflect.Type) []field {
	if fields, ok := known.Load(t); ok {
		return fields.([]field)
	}
	fields := findFields(t)
	known.Store(t, fields)
	return fields
}

func findFields(t reflect.Type) []field {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline"):
			for _, below := range fieldsOf(f.Type) {
				out = append(out, field{below.key, below.typ, append([]int{i}, below.index...)})
			}
		default:
			out = append(out, field{cmp.Or(name, strings.ToLower(f.Name)), f.Type, []int{i}})
		}
	}
	return out
}

func keysOf(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.key
	}
	return out
}

// decode fills the struct that into points to from m, strictly. also lists further valid keys of this place, for
// messages only.
func decode(src *source, m *ast.MappingNode, path string, into any, also []string) (err error) {
	if err := checkMap(src, m, path, fieldsOf(reflect.TypeOf(into)), also); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = src.at(tokenOf(m), path, "does not fit: %v", r)
		}
	}()
	if err := yaml.NodeToValue(m, into, yaml.Strict()); err != nil {
		var e yaml.Error
		if errors.As(err, &e) {
			return src.at(e.GetToken(), path, "%s", e.GetMessage())
		}
		return src.at(tokenOf(m), path, "%v", err)
	}
	return nil
}

// readsItself is implemented by types that decode more than one form.
var readsItself = reflect.TypeFor[yaml.InterfaceUnmarshaler]()

// message returns the decoder's message without the excerpt of the text that it adds.
func message(err error) string {
	var e yaml.Error
	if errors.As(err, &e) {
		return e.GetMessage()
	}
	return err.Error()
}

func checkMap(src *source, m *ast.MappingNode, path string, fields []field, also []string) error {
	for _, v := range m.Values {
		key := keyOf(v)
		i := 0
		for i < len(fields) && fields[i].key != key {
			i++
		}
		if i == len(fields) {
			return unknownKey(src, v, path, append(keysOf(fields), also...))
		}
		if err := check(src, v.Value, join(path, key), fields[i].typ, v); err != nil {
			return err
		}
	}
	return nil
}

func unknownKey(src *source, v *ast.MappingValueNode, path string, valid []string) error {
	return src.at(tokenOf(v.Key), path, "unknown key %q; %s", keyOf(v), instead(keyOf(v), valid))
}

// check reports an error unless a value fits a Go type. The decoder alone would accept 0.5 as a whole number and an
// empty value as a default, and its messages say less.
func check(src *source, n ast.Node, path string, t reflect.Type, pair *ast.MappingValueNode) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n == nil || n.Type() == ast.NullType {
		return src.at(tokenOf(pair.Key), path, "has no value")
	}
	wrong := func(want string) error {
		return src.at(tokenOf(n), path, "%s is not %s", shown(n), want)
	}
	switch {
	case t == durationType:
		return checkDuration(src, n, path)
	case t == sizeType:
		return checkSize(src, n, path)
	case reflect.PointerTo(t).Implements(readsItself):
		if err := yaml.NodeToValue(n, reflect.New(t).Interface()); err != nil {
			return src.at(tokenOf(n), path, "%s does not fit: %s", shown(n), message(err))
		}
	case t.Kind() == reflect.String:
		if _, ok := textOf(n); !ok && !numberAsText(n, t) {
			return wrong("text; quote it if text is meant")
		}
	case t.Kind() == reflect.Bool:
		if n.Type() != ast.BoolType {
			return wrong("true or false")
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return checkWhole(src, n, path, t)
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		if n.Type() != ast.IntegerType && n.Type() != ast.FloatType {
			return wrong("a number")
		}
	case t.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return wrong("a list")
		}
		for i, v := range list.Values {
			if err := check(src, v, join(path, strconv.Itoa(i)), t.Elem(), pair); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Map:
		m, ok := n.(*ast.MappingNode)
		if !ok {
			return wrong("a map of keys")
		}
		for _, v := range m.Values {
			if err := check(src, v.Value, join(path, keyOf(v)), t.Elem(), v); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct:
		m, ok := n.(*ast.MappingNode)
		if !ok {
			return wrong("a map of keys: " + strings.Join(keysOf(fieldsOf(t)), ", "))
		}
		return checkMap(src, m, path, fieldsOf(t), nil)
	}
	return nil
}

// textReader is implemented by text types that may be written as a number, such as a version: 3.4.
var textReader = reflect.TypeFor[encoding.TextUnmarshaler]()

func numberAsText(n ast.Node, t reflect.Type) bool {
	return (n.Type() == ast.IntegerType || n.Type() == ast.FloatType) && reflect.PointerTo(t).Implements(textReader)
}

func checkWhole(src *source, n ast.Node, path string, t reflect.Type) error {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return src.at(tokenOf(n), path, "%s is not a whole number", shown(n))
	}
	signed := t.Kind() <= reflect.Int64
	zero := reflect.Zero(t)
	switch v := i.Value.(type) {
	case int64:
		if v < 0 && !signed {
			return src.at(tokenOf(n), path, "%s is negative; it must be 0 or more", shown(n))
		}
		if signed && !zero.OverflowInt(v) || !signed && !zero.OverflowUint(uint64(v)) {
			return nil
		}
	case uint64:
		if !signed && !zero.OverflowUint(v) || signed && v <= math.MaxInt64 && !zero.OverflowInt(int64(v)) {
			return nil
		}
	}
	return src.at(tokenOf(n), path, "%s is too large", shown(n))
}

func checkDuration(src *source, n ast.Node, path string) error {
	text, ok := textOf(n)
	if !ok {
		if t := n.Type(); t == ast.IntegerType || t == ast.FloatType {
			s := shown(n)
			return src.at(tokenOf(n), path, "%s has no unit: write %sms, %ss or %sm", s, s, s, s)
		}
		return src.at(tokenOf(n), path, "%s is not a duration, such as 50ms or 2s", shown(n))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return src.at(tokenOf(n), path, "%q is not a duration: a number and a unit (ns, us, ms, s, m, h), such as 50ms or 2s",
			text)
	}
	if d < 0 {
		return src.at(tokenOf(n), path, "%s is negative", text)
	}
	return nil
}

// textOf returns the text of a string scalar.
func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// shown returns a value in the form that messages print.
func shown(n ast.Node) string {
	if s, ok := textOf(n); ok {
		return strconv.Quote(s)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	default:
		return strings.TrimSpace(fmt.Sprint(n.GetToken().Value))
	}
}
