package scenarios

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

func item(path string, i int) string { return join(path, strconv.Itoa(i)) }

// Errorf returns an error about a key of the scenario, such as "backend.lock" or "steps.2.on", in this package's
// form. It is for callers that know what the key names.
func (s Scenario) Errorf(path, format string, args ...any) error {
	src, root := s.src, s.root
	if src == nil {
		src = newSource(s.File, nil)
	}
	return errorAt(src, root, path, format, args...)
}

// errorAt points at the value under path. If that is missing, it points at the nearest map or list above it.
func errorAt(src *source, root *ast.MappingNode, path, format string, args ...any) *Error {
	var place *token.Token
	var at ast.Node
	if root != nil {
		at = root
	}
	for _, key := range strings.Split(path, ".") {
		switch n := at.(type) {
		case *ast.MappingNode:
			v := entry(n, key)
			if v == nil {
				return src.at(place, path, format, args...)
			}
			at, place = v.Value, tokenOf(v.Value)
			if seq, ok := v.Value.(*ast.SequenceNode); ok && !seq.IsFlowStyle {
				place = tokenOf(v.Key)
			}
		case *ast.SequenceNode:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(n.Values) {
				return src.at(place, path, format, args...)
			}
			at, place = n.Values[i], tokenOf(n.Values[i])
		}
	}
	return src.at(place, path, format, args...)
}
