package scenarios

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

var twinKeys = []string{"claim", "source", "about", "expect", "same", "set", "steps"}

// twins returns the variants that a scenario's own file describes, in their order.
func twins(s Scenario) ([]Scenario, error) {
	r := reader{document{src: s.src, root: s.root}}
	m, err := r.section("twins")
	if err != nil || m == nil {
		return nil, err
	}
	var out []Scenario
	for _, v := range m.Values {
		word, path := keyOf(v), join("twins", keyOf(v))
		if !nameForm.MatchString(word) || len(s.Name)+1+len(word) > maxLength {
			return nil, s.src.at(tokenOf(v.Key), path,
				"is not a name for a twin: lower-case letters, digits and single dashes, %d with the scenario's own name",
				maxLength)
		}
		def, err := r.mapping(v.Value, path, v)
		if err != nil {
			return nil, err
		}
		t, err := r.twin(s, word, def)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// twin applies one variant to its story.
func (r reader) twin(s Scenario, word string, def *ast.MappingNode) (Scenario, error) {
	path := join("twins", word)
	for _, key := range []string{"claim", "expect"} {
		if entry(def, key) == nil {
			return Scenario{}, r.errorf(join(path, key),
				"is missing: a twin needs its own claim and expectations")
		}
	}
	root := without(r.root, "twins")
	name := *entry(root, "name")
	text := *name.Value.GetToken()
	text.Value = s.Name + "-" + word
	root = put(root, "name", &ast.MappingValueNode{
		BaseNode: &ast.BaseNode{}, Start: name.Start, Key: name.Key, Value: ast.String(&text),
	})
	same := ""
	for _, v := range def.Values {
		switch key := keyOf(v); key {
		case "claim", "source", "about", "expect", "steps":
			root = put(root, key, v)
		case "same":
			if same, _ = textOf(v.Value); same == "" {
				return Scenario{}, r.src.at(tokenOf(v.Key), join(path, key),
					"is not text: it should say why the expectations are those of the story")
			}
		case "set":
			m, err := r.mapping(v.Value, join(path, "set"), v)
			if err != nil {
				return Scenario{}, err
			}
			for _, set := range m.Values {
				if root, err = setPath(r.src, root, strings.Split(keyOf(set), "."), set); err != nil {
					return Scenario{}, err
				}
			}
		default:
			return Scenario{}, unknownKey(r.src, v, path, twinKeys)
		}
	}
	t, err := build(r.src, root)
	t.Same = same
	return t, err
}

// without returns m without a key.
func without(m *ast.MappingNode, key string) *ast.MappingNode {
	var values []*ast.MappingValueNode
	for _, v := range m.Values {
		if keyOf(v) != key {
			values = append(values, v)
		}
	}
	return mapping(m, values)
}

// put returns m with the pair replacing the one with that key, or appended.
func put(m *ast.MappingNode, key string, pair *ast.MappingValueNode) *ast.MappingNode {
	values, found := make([]*ast.MappingValueNode, len(m.Values)), false
	for i, v := range m.Values {
		values[i] = v
		if keyOf(v) == key {
			values[i], found = pair, true
		}
	}
	if !found {
		values = append(values, pair)
	}
	return mapping(m, values)
}
