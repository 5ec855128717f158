package scenarios

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// With returns the scenario with some keys replaced. Each argument is "key.path=value", such as
// "workload.resource.guard=fence", "chaos.0.for=3s" or "expect.double_grants=>0". The value is read as YAML, and the
// result is checked like a file.
func (s Scenario) With(set []string) (Scenario, error) {
	if len(set) == 0 {
		return s, nil
	}
	src, root := s.src, s.root
	if root == nil {
		parsed, err := Parse(s.Text, s.File)
		if err != nil {
			return s, err
		}
		src, root = parsed.src, parsed.root
	}
	changed := *src
	changed.sets = maps.Clone(src.sets)
	if changed.sets == nil {
		changed.sets = map[*token.Token]string{}
	}
	root = without(root, "twins")
	for _, arg := range set {
		key, value, ok := strings.Cut(arg, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return s, &Error{Set: arg, Message: "is not of the form key.path=value, such as workload.clients=4"}
		}
		node, err := setValue(value)
		if err != nil {
			return s, &Error{Set: arg, Path: key, Message: err.Error()}
		}
		keys := strings.Split(key, ".")
		pair := pairOf(keys[len(keys)-1], node)
		mark(pair.Key, arg, changed.sets)
		mark(node, arg, changed.sets)
		if root, err = setPath(&changed, root, keys, pair); err != nil {
			return s, err
		}
	}
	out, err := build(&changed, root)
	var e *Error
	if errors.As(err, &e) && e.Set == "" { // the file itself was valid
		e.Message += "; set by --set " + strings.Join(set, " --set ")
	}
	return out, err
}

// setValue reads the value of a --set. A value that is not valid YAML, such as >0, is taken as text.
func setValue(value string) (ast.Node, error) {
	trimmed := strings.TrimSpace(value)
	if trimmed == "" {
		return nil, errors.New("has no value")
	}
	if !strings.ContainsAny(trimmed[:1], `>|*&!%@#`+"`") {
		src := newSource("value", []byte(trimmed))
		node, err := readNode(src, []byte(trimmed))
		if err == nil && !strings.ContainsAny(trimmed[:1], `[{`) && node.Type() == ast.MappingType {
			node = textNode(trimmed) // a colon in the text makes no map
		}
		var e *Error
		if errors.As(err, &e) {
			return nil, errors.New(e.Message)
		}
		return node, err
	}
	return textNode(trimmed), nil
}

func textNode(s string) *ast.StringNode {
	return ast.String(token.New(s, s, &token.Position{Line: 1, Column: 1}))
}

func pairOf(key string, value ast.Node) *ast.MappingValueNode {
	k := textNode(key)
	return ast.MappingValue(token.New(":", ":", &token.Position{Line: 1, Column: 1}), k, value)
}

// mark records that all tokens of a value came from a --set argument.
func mark(n ast.Node, arg string, sets map[*token.Token]string) {
	if tok := tokenOf(n); tok != nil {
		sets[tok] = arg
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		sets[n.Start] = arg
		for _, v := range n.Values {
			mark(v.Key, arg, sets)
			mark(v.Value, arg, sets)
		}
	case *ast.SequenceNode:
		for _, v := range n.Values {
			mark(v, arg, sets)
		}
	}
}

// setPath returns root with the value of pair at the path of keys. It never changes nodes, because other variants of
// the scenario share them. Errors point at the pair's key.
func setPath(src *source, root *ast.MappingNode, keys []string, pair *ast.MappingValueNode) (*ast.MappingNode, error) {
	if len(keys) > 2 && keys[0] == "expect" { // names of measures may have dots
		keys = []string{"expect", strings.Join(keys[1:], ".")}
	}
	if !slices.Contains(rootKeys, keys[0]) {
		return nil, src.at(tokenOf(pair.Key), strings.Join(keys, "."), "unknown key %q; %s", keys[0],
			instead(keys[0], rootKeys))
	}
	if keys[0] == "twins" || keys[0] == "name" {
		return nil, src.at(tokenOf(pair.Key), strings.Join(keys, "."),
			"cannot be set; write a file or a twin for the variant")
	}
	n, err := replaced(src, root, keys, 0, pair)
	if err != nil {
		return nil, err
	}
	return n.(*ast.MappingNode), nil
}

func replaced(src *source, n ast.Node, keys []string, depth int, pair *ast.MappingValueNode) (ast.Node, error) {
	if depth == len(keys) {
		return pair.Value, nil
	}
	key, path := keys[depth], strings.Join(keys, ".")
	switch n := n.(type) {
	case *ast.MappingNode:
		old := entry(n, key)
		var below ast.Node
		keyNode := ast.MapKeyNode(nil)
		if old != nil {
			below, keyNode = old.Value, old.Key
		} else {
			if depth+1 < len(keys) && number(keys[depth+1]) {
				return nil, src.at(tokenOf(pair.Key), path, "there is no list %s; write the whole list",
					strings.Join(keys[:depth+1], "."))
			}
			k := *tokenOf(pair.Key)
			k.Value = key
			if set, ok := src.sets[tokenOf(pair.Key)]; ok {
				src.sets[&k] = set
			}
			keyNode = ast.String(&k)
			below = ast.Mapping(tokenOf(pair.Key), true)
		}
		value, err := replaced(src, below, keys, depth+1, pair)
		if err != nil {
			return nil, err
		}
		return put(n, key, ast.MappingValue(pair.Start, keyNode, value)), nil
	case *ast.SequenceNode:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(n.Values) {
			return nil, src.at(tokenOf(pair.Key), path, "there is no entry %q in %s; %s", key,
				strings.Join(keys[:depth], "."), span(len(n.Values)))
		}
		value, err := replaced(src, n.Values[i], keys, depth+1, pair)
		if err != nil {
			return nil, err
		}
		out := ast.Sequence(n.Start, n.IsFlowStyle)
		out.End, out.Values = n.End, slices.Clone(n.Values)
		out.Values[i] = value
		return out, nil
	}
	return nil, src.at(tokenOf(pair.Key), path, "%s is %s and has no keys", strings.Join(keys[:depth], "."), shown(n))
}

func number(key string) bool {
	_, err := strconv.Atoi(key)
	return err == nil
}

func span(n int) string {
	switch n {
	case 0:
		return "it is empty"
	case 1:
		return "it has one, numbered 0"
	}
	return "they are numbered from 0 to " + strconv.Itoa(n-1)
}
