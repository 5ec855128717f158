package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/scenarios"
)

// faultsFolder holds one file for each fault and what they share; a run is made of those that its scenario names.
const faultsFolder = "chaos"

// faultsList is the function there that lists all faults, each by a function of its own.
const faultsList = "Kinds"

// parts are the declarations of a package, and which of them each mentions.
type parts struct {
	code     map[string][]byte   // by name; a method's is its type's and its own
	mentions map[string][]string // names of others
	exported []string            // what other packages may use: all but methods, which come with their types
}

// readParts reads the declarations of a folder, whatever platform they are for. What they import need not be there: names of other
// packages are not asked for.
func readParts(dir string) (parts, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return parts{}, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	source := map[*token.File][]byte{}
	for _, path := range paths {
		if !matters(path) {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return parts{}, err
		}
		f, err := parser.ParseFile(fset, path, b, parser.SkipObjectResolution)
		if err != nil {
			return parts{}, err
		}
		files = append(files, f)
		source[fset.File(f.Pos())] = b
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	unknown := types.Config{Importer: noImporter{}, Error: func(error) {}}
	pkg, _ := unknown.Check(dir, fset, files, &info) // what it complains of is what it cannot import
	p := parts{code: map[string][]byte{}, mentions: map[string][]string{}}
	for _, f := range files {
		for _, d := range f.Decls {
			file := fset.File(d.Pos())
			p.add(d, source[file][file.Offset(d.Pos()):file.Offset(d.End())], func(n *ast.Ident) bool {
				used := info.Uses[n]
				return used != nil && used.Parent() == pkg.Scope()
			})
		}
	}
	return p, nil
}

type noImporter struct{}

func (noImporter) Import(path string) (*types.Package, error) { return nil, errors.New(path) }

// add takes one declaration into account; uses tells which identifiers are names of the package.
func (p *parts) add(d ast.Decl, text []byte, uses func(*ast.Ident) bool) {
	names := declared(d)
	if len(names) == 0 { // imports, and variables without a name, which are for the compiler
		return
	}
	first := names[0]
	p.code[first] = append(append(p.code[first], code(text)...), '\n')
	for _, n := range names[1:] { // they stand and fall together
		p.mentions[n], p.mentions[first] = append(p.mentions[n], first), append(p.mentions[first], n)
	}
	ast.Inspect(d, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && uses(id) {
			p.mentions[first] = append(p.mentions[first], id.Name)
		}
		return true
	})
	if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
		return
	}
	for _, n := range names {
		if ast.IsExported(n) || n == "init" {
			p.exported = append(p.exported, n)
		}
	}
}

// declared is what a declaration gives names to; a method counts as its type.
func declared(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		for {
			switch x := t.(type) {
			case *ast.StarExpr:
				t = x.X
			case *ast.IndexExpr:
				t = x.X
			case *ast.IndexListExpr:
				t = x.X
			default:
				return []string{t.(*ast.Ident).Name}
			}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.Name != "_" {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// of is the code that runs with some faults can come to: what they and all that is exported reach, but for the list, which names the
// others.
func (p parts) of(faults []string) (string, error) {
	next := slices.Clone(p.exported)
	for _, f := range faults {
		kind := kindOf(f)
		if p.code[kind] == nil {
			return "", fmt.Errorf("%s has no function %s for the fault %s", faultsFolder, kind, f)
		}
		next = append(next, kind)
	}
	seen := map[string]bool{faultsList: true}
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[name] {
			continue
		}
		seen[name] = true
		next = append(next, p.mentions[name]...)
	}
	var names []string
	for n := range seen {
		if n != faultsList {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var out strings.Builder
	for _, n := range names {
		out.Write(p.code[n])
	}
	return out.String(), nil
}

// kindOf is the function that makes a fault's kind: clockJumpKind of clock-jump.
func kindOf(fault string) string {
	words := strings.Split(fault, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "") + "Kind"
}

// faultsOf are the faults that a scenario can come to.
func faultsOf(s scenarios.Scenario) []string {
	var out []string
	for _, in := range s.Chaos {
		out = append(out, in.Use)
	}
	for _, step := range s.Steps {
		if step.Inject != "" {
			out = append(out, step.Inject)
		}
	}
	if s.Random != nil {
		for _, f := range s.Random.Faults {
			out = append(out, f.Use)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
