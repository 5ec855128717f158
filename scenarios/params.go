package scenarios

import (
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Params is the keys of a section that belong to the instance it names. They stay YAML nodes until the instance's own
// struct decodes them.
type Params struct {
	node *ast.MappingNode // nil: there are none
}

// Decode fills the struct that into points to. A key that it does not have, or a value that does not fit, is an error
// with line and caret. Keys that are not there leave the struct's defaults.
func (p Params) Decode(into any) error {
	if p.node == nil {
		return nil
	}
	return yaml.NodeToValue(p.node, into, yaml.Strict())
}
