package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// place is a range in a source file.
type place struct {
	file     string // from the root of the module
	from, to int    // bytes
}

// find returns the place in the declaration whose syntax is that of Old: an expression, a statement, another node of
// the tree, or neighbours in a list. Layout, comments and the name of the file do not matter.
func (m Mutant) find(root string) (place, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*.go"))
	if err != nil {
		return place{}, err
	}
	var found []place
	declared, wanted, word := 0, lexemes(m.Old), m.Func
	if dot := strings.LastIndex(m.Func, "."); dot >= 0 {
		word = ") " + m.Func[dot+1:] + "("
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return place{}, err
		}
		if strings.HasSuffix(path, "_test.go") || !strings.Contains(string(text), word) {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return place{}, err
		}
		for _, d := range declarations(file) {
			if d.name != m.Func {
				continue
			}
			declared++
			for _, piece := range pieces(d.node) {
				from, to := set.Position(piece[0]).Offset, set.Position(piece[1]).Offset
				p := place{m.Package + "/" + filepath.Base(path), from, to}
				if code := string(text[from:to]); alike(code, wanted) && !slices.Contains(found, p) {
					found = append(found, p)
				}
			}
		}
	}
	switch {
	case declared != 1:
		return place{}, fmt.Errorf("%s is declared %d times in %s", m.Func, declared, m.Package)
	case len(found) != 1:
		return place{}, fmt.Errorf("the syntax of %q is found %d times in %s", m.Old, len(found), m.Func)
	}
	return found[0], nil
}

// alike reports whether the tokens of code are those wanted.
func alike(code string, wanted []string) bool {
	return len(wanted) > 0 && strings.HasPrefix(code, wanted[0]) && slices.Equal(lexemes(code), wanted)
}

// declaration is a function, method, type, constant or variable of a package.
type declaration struct {
	name string
	node ast.Node
}

func declarations(file *ast.File) (all []declaration) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{funcName(d), d})
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					all = append(all, declaration{s.Name.Name, s})
				case *ast.ValueSpec:
					for _, n := range s.Names {
						all = append(all, declaration{n.Name, s})
					}
				}
			}
		}
	}
	return all
}

// funcName returns the name of a function as stack traces have it, such as (*tracker).begin.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of, pointer := d.Recv.List[0].Type, false
	if star, ok := of.(*ast.StarExpr); ok {
		of, pointer = star.X, true
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	name := of.(*ast.Ident).Name
	if pointer {
		name = "(*" + name + ")"
	}
	return name + "." + d.Name.Name
}

// pieces returns the beginnings and ends of all nodes below a node, and of neighbours in a list.
func pieces(of ast.Node) (all [][2]token.Pos) {
	var list []ast.Node
	ast.Inspect(of, func(n ast.Node) bool {
		if n != nil && n != of {
			list = append(list, n)
			all = append(all, pieces(n)...)
		}
		return n == of
	})
	if call, ok := of.(*ast.CallExpr); ok {
		all, list = append(all, [2]token.Pos{call.Fun.Pos(), call.Fun.End()}), list[1:]
	}
	for i := range list {
		for _, last := range list[i:] {
			all = append(all, [2]token.Pos{list[i].Pos(), last.End()})
		}
	}
	return all
}

// lexemes returns the tokens of code, without those that layout alone decides: comments, ends of lines, and commas
// before a closing bracket.
func lexemes(code string) (all []string) {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(code)), []byte(code), nil, 0)
	for {
		_, t, text := s.Scan()
		switch n := len(all); t {
		case token.RPAREN, token.RBRACE, token.RBRACK, token.EOF:
			if n > 0 && (all[n-1] == "," || all[n-1] == ";") {
				all = all[:n-1]
			}
		}
		switch {
		case t == token.EOF:
			return all
		case t.IsLiteral():
			all = append(all, text)
		default:
			all = append(all, t.String())
		}
	}
}
