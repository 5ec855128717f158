package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of the input: a scenario is a paragraph.
const (
	maxBytes = 256 << 10
	maxDepth = 16
)

// readRoot parses one YAML document whose top is a mapping, made of plain maps, lists and scalars only.
func readRoot(src *source, data []byte) (*ast.MappingNode, error) {
	body, err := readNode(src, data)
	if err != nil {
		return nil, err
	}
	root, ok := body.(*ast.MappingNode)
	if !ok {
		return nil, src.at(tokenOf(body), "", "a scenario is a map of keys: %s", strings.Join(rootKeys, ", "))
	}
	return root, nil
}

func readNode(src *source, data []byte) (node ast.Node, err error) {
	if len(data) > maxBytes {
		return nil, src.at(nil, "", "%d bytes: a scenario has at most %d", len(data), maxBytes)
	}
	if !utf8.Valid(data) {
		return nil, src.at(nil, "", "not UTF-8 text")
	}
	if depth := nesting(data); depth > 4*maxDepth {
		return nil, src.at(nil, "", "nested too deeply")
	}
	defer func() {
		if r := recover(); r != nil { // the parser gives up this way on some malformed input
			node, err = nil, src.at(nil, "", "not YAML: %v", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntax(src, err)
	}
	switch {
	case len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.CommentType:
		return nil, src.at(nil, "", "empty: a scenario is a map of keys: %s", strings.Join(rootKeys, ", "))
	case len(file.Docs) > 1:
		return nil, src.at(file.Docs[1].Start, "", "one file holds one scenario; its variants go under twins")
	}
	if err := plain(src, file.Docs[0].Body, "", 0); err != nil {
		return nil, err
	}
	return file.Docs[0].Body, nil
}

// nesting returns the deepest nesting of brackets, including quoted ones: a cheap guard for the parser's stack.
func nesting(data []byte) int {
	depth, deepest := 0, 0
	for _, b := range data {
		switch b {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

// syntax converts the parser's error into an *Error.
func syntax(src *source, err error) error {
	var e yaml.Error
	if !errors.As(err, &e) {
		return src.at(nil, "", "not YAML: %v", err)
	}
	message := e.GetMessage()
	if strings.HasPrefix(message, "invalid header option") {
		message = `a value that begins with > or | must be quoted, such as ">0"`
	}
	return src.at(e.GetToken(), "", "%s", message)
}

// plain rejects YAML features that scenarios do not use: anchors, aliases, tags, merge keys, keys that are not words.
func plain(src *source, n ast.Node, path string, depth int) error {
	if depth > maxDepth {
		return src.at(tokenOf(n), path, "nested too deeply")
	}
	switch n := n.(type) {
	case nil:
		return src.at(nil, path, "has no value")
	case *ast.MappingNode:
		for _, v := range n.Values {
			key, ok := v.Key.(*ast.StringNode)
			if !ok {
				return src.at(tokenOf(v.Key), path, "%s is not a key: keys are words", strings.TrimSpace(v.Key.String()))
			}
			if err := plain(src, v.Value, join(path, key.Value), depth+1); err != nil {
				return err
			}
		}
	case *ast.SequenceNode:
		for i, v := range n.Values {
			if err := plain(src, v, join(path, fmt.Sprint(i)), depth+1); err != nil {
				return err
			}
		}
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
	default:
		return src.at(tokenOf(n), path, "%s is not used in scenarios: write the value itself",
			strings.ToLower(n.Type().String()))
	}
	return nil
}

// tokenOf returns the token that an error about n points at.
func tokenOf(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return tokenOf(n.Values[0].Key)
		}
		return n.Start
	case *ast.SequenceNode:
		return n.Start
	}
	return n.GetToken()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// entry returns the pair with that key, or nil.
func entry(m *ast.MappingNode, key string) *ast.MappingValueNode {
	for _, v := range m.Values {
		if keyOf(v) == key {
			return v
		}
	}
	return nil
}

func keyOf(v *ast.MappingValueNode) string {
	if s, ok := v.Key.(*ast.StringNode); ok {
		return s.Value
	}
	return ""
}

// mapping returns a map with other pairs at the place of m.
func mapping(m *ast.MappingNode, values []*ast.MappingValueNode) *ast.MappingNode {
	out := ast.Mapping(m.Start, m.IsFlowStyle)
	out.End, out.Values = m.End, values
	return out
}
