package scenarios

import (
	"github.com/goccy/go-yaml/ast"
)

// Params are the keys of a section that belong to the instance it names. They stay YAML nodes until the instance's
// own struct decodes them.
type Params struct {
	node   *ast.MappingNode // nil: there are none
	src    *source
	path   string   // of the section
	common []string // keys of the section that are not the instance's
}

// Decode fills the struct that into points to. An unknown key, a duration without unit, or a value that does not fit
// is an error with line and caret. Missing keys keep the struct's defaults.
func (p Params) Decode(into any) error {
	if p.node == nil {
		return nil
	}
	return decode(p.src, p.node, p.path, into, p.common)
}

// Keys returns the keys in the order in which they were written.
func (p Params) Keys() []string {
	if p.node == nil {
		return nil
	}
	var out []string
	for _, v := range p.node.Values {
		out = append(out, keyOf(v))
	}
	return out
}

// String returns the parameters as one line of YAML without its braces, such as "delay: 2s"; "" when there are none.
func (p Params) String() string {
	if p.node == nil {
		return ""
	}
	s := flow(p.node)
	return s[1 : len(s)-1]
}

// Errorf returns an error about the value of a key, with line and caret.
func (p Params) Errorf(key, format string, args ...any) error {
	if p.node == nil {
		return p.src.at(nil, key, format, args...)
	}
	v := entry(p.node, key)
	if v == nil {
		return p.src.at(nil, key, format, args...)
	}
	return p.src.at(tokenOf(v.Value), key, format, args...)
}

// ParseParams reads parameters from YAML text such as "{delay: 2s}".
func ParseParams(text string) (Params, error) { return ReadParams([]byte(text), "parameters") }

// ReadParams reads a file that is a map of keys, with the strictness of scenarios.
func ReadParams(data []byte, file string) (Params, error) {
	src := newSource(file, data)
	n, err := readNode(src, data)
	if err != nil {
		return Params{}, err
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return Params{}, src.at(tokenOf(n), "", "%s is not a map of keys", shown(n))
	}
	return Params{node: m, src: src}, nil
}
