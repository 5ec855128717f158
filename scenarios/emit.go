package scenarios

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// A string that needs no quotes anywhere, a flow map included.
var (
	bareWord   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./%()+-]*( [A-Za-z0-9_./%()+-]+)*$`)
	bareTime   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)$`)
	notStrings = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
	notKeys    = []string{"null", "true", "false"}
)

// emit writes a scenario as YAML: one line per section, one per list entry. Twins are left out.
func emit(root *ast.MappingNode) []byte {
	var b bytes.Buffer
	for _, v := range root.Values {
		if keyOf(v) == "twins" {
			continue
		}
		emitSection(&b, v)
	}
	return b.Bytes()
}

func emitSection(b *bytes.Buffer, v *ast.MappingValueNode) {
	b.WriteString(keyOf(v) + ":")
	list, ok := v.Value.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 {
		b.WriteString(" " + flow(v.Value) + "\n")
		return
	}
	b.WriteString("\n")
	for _, n := range list.Values {
		b.WriteString("  - " + flow(n) + "\n")
	}
}

// flow writes a value on one line.
func flow(n ast.Node) string {
	if s, ok := textOf(n); ok {
		return scalar(s)
	}
	var parts []string
	switch n := n.(type) {
	case nil:
		return "null"
	case *ast.NullNode:
		return "null"
	case *ast.MappingNode:
		for _, v := range n.Values {
			parts = append(parts, keyText(keyOf(v))+": "+flow(v.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *ast.SequenceNode:
		for _, v := range n.Values {
			parts = append(parts, flow(v))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return strings.TrimSpace(n.GetToken().Value)
}

// keyText writes a key; "on" is one that people write without quotes.
func keyText(s string) string {
	if bareWord.MatchString(s) && !slices.Contains(notKeys, strings.ToLower(s)) {
		return s
	}
	return scalar(s)
}

// scalar writes a string, quoted as JSON does (which YAML reads) unless it is a plain word.
func scalar(s string) string {
	if bareTime.MatchString(s) || bareWord.MatchString(s) && !slices.Contains(notStrings, strings.ToLower(s)) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// withoutTwins cuts the twins out of a scenario's text and keeps comments and layout. ok is false when that is not
// safe.
func withoutTwins(data []byte, root *ast.MappingNode) (text []byte, ok bool) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i, v := range root.Values {
		at := tokenOf(v.Key)
		if at == nil || at.Position == nil || root.IsFlowStyle || at.Position.Column != 1 {
			return nil, false
		}
		if keyOf(v) != "twins" {
			continue
		}
		from, to := at.Position.Line-1, len(lines)
		if i+1 < len(root.Values) {
			to = tokenOf(root.Values[i+1].Key).Position.Line - 1
		}
		if from < 0 || from > to || to > len(lines) {
			return nil, false
		}
		return bytes.Join(append(slices.Clone(lines[:from]), lines[to:]...), nil), true
	}
	return data, true
}
