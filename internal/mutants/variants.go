package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable that names the variant to run; 0 or unset is the unchanged code.
const chosen = "LOCKQUAKE_MUTANT"

// variants puts the mutants of all functions into the code at once, each as a variant of its function. So the tests
// of a package are built once instead of once per mutant. Example: of the mutants 7 and 9 of
//
//	func less(a, b int) bool { return a < b }
//
// it makes less__0 (the unchanged code), less__7 and less__9, and a less that calls the chosen one.
type variants struct {
	root, dir string
	overlay   string           // the file that lays them over the code
	of        map[string][]int // by file: its mutants
	all       []Mutant         // by number, from 1
	out       map[int]bool     // do not compile beside the others, or are in no function: tried alone
	lines     map[string][]int // by file: the variant that each line belongs to; 0: none
}

// newVariants lays out the mutants, without those that do not compile.
func newVariants(ctx context.Context, root, dir string, all []Mutant) (*variants, error) {
	v := &variants{root: root, dir: dir, all: all, of: map[string][]int{}, out: map[int]bool{}}
	packages := map[string]bool{}
	for i, m := range all {
		if m.Equivalent == "" {
			v.of[m.at.file] = append(v.of[m.at.file], i+1)
			packages["./"+filepath.ToSlash(filepath.Dir(m.at.file))] = true
		}
	}
	for {
		if err := v.write(); err != nil {
			return nil, err
		}
		args := []string{"build", "-overlay", v.overlay}
		for p := range packages {
			args = append(args, p)
		}
		out, err := command(ctx, root, nil, "go", args...)
		if err == nil {
			return v, nil
		}
		if !v.leaveOut(out) {
			return nil, fmt.Errorf("the variants do not compile: %s", lastLines(out))
		}
	}
}

// number returns the number of a mutant's variant; 0 if it has none.
func (v *variants) number(m Mutant) int {
	for _, i := range v.of[m.at.file] {
		if v.all[i-1].at == m.at && v.all[i-1].New == m.New && !v.out[i] {
			return i
		}
	}
	return 0
}

var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: `)

// leaveOut removes the variants that a compiler rejects. It reports whether there were any.
func (v *variants) leaveOut(out string) (found bool) {
	for _, e := range compileError.FindAllStringSubmatch(out, -1) {
		line, err := strconv.Atoi(e[2])
		name := filepath.ToSlash(filepath.Clean(e[1]))
		if _, below, laid := strings.Cut(name, "/variants/"); laid { // by its own name or by that of its overlay
			name = below
		}
		of := v.lines[name]
		if err == nil && line < len(of) && of[line] != 0 && !v.out[of[line]] {
			v.out[of[line]], found = true, true
		}
	}
	return found
}

// write writes the files and the overlay.
func (v *variants) write() error {
	replace, folders := map[string]string{}, map[string]string{} // folder -> package
	v.lines = map[string][]int{}
	for file := range v.of {
		text, name, err := v.file(file)
		if err != nil {
			return err
		}
		folders[filepath.Dir(filepath.FromSlash(file))] = name
		if err := v.lay(replace, filepath.FromSlash(file), text); err != nil {
			return err
		}
	}
	for folder, name := range folders {
		text := fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var mutant__, _ = strconv.Atoi(os.Getenv(%q))
`, name, chosen)
		if err := v.lay(replace, filepath.Join(folder, "mutant__.go"), text); err != nil {
			return err
		}
	}
	j, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	v.overlay = filepath.Join(v.dir, "variants.json")
	return os.WriteFile(v.overlay, j, 0o600)
}

func (v *variants) lay(replace map[string]string, file, text string) error {
	over := filepath.Join(v.dir, "variants", file)
	replace[filepath.Join(v.root, file)] = over
	if err := os.MkdirAll(filepath.Dir(over), 0o700); err != nil {
		return err
	}
	return os.WriteFile(over, []byte(text), 0o600)
}

// file returns a source file followed by the variants of its functions, and the name of its package.
func (v *variants) file(name string) (text, pkg string, err error) {
	b, err := os.ReadFile(filepath.Join(v.root, filepath.FromSlash(name)))
	if err != nil {
		return "", "", err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, b, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	code := string(b)
	at := func(p token.Pos) int { return set.Position(p).Offset }
	lines := make([]int, strings.Count(code, "\n"))
	var behind strings.Builder
	for _, d := range slices.Backward(file.Decls) { // from the end, so that earlier places stay valid
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Type.TypeParams != nil {
			continue
		}
		from, to := at(f.Pos()), at(f.End())
		var cases []int
		for _, i := range v.of[name] {
			m := v.all[i-1]
			if v.out[i] || m.at.from < at(f.Body.Lbrace) || m.at.to > to {
				continue
			}
			end := at(f.Name.End())
			variant := fmt.Sprintf("\n%s__%d%s%s%s\n", b[from:end], i, b[end:m.at.from], m.New, b[m.at.to:to])
			cases = append(cases, i)
			behind.WriteString(variant)
			lines = append(lines, slices.Repeat([]int{i}, strings.Count(variant, "\n"))...)
		}
		if len(cases) == 0 {
			continue
		}
		choice := chooser(string(b), at, f, cases)
		behind.WriteString(choice)
		lines = append(lines, make([]int, strings.Count(choice, "\n"))...)
		end := at(f.Name.End())
		code = code[:end] + "__0" + code[end:]
	}
	for _, i := range v.of[name] { // those outside a function's body
		v.out[i] = v.out[i] || !slices.Contains(lines, i)
	}
	v.lines[path.Clean(name)] = append([]int{0}, lines...)
	return code + behind.String(), file.Name.Name, nil
}

// chooser returns the function that calls a variant.
func chooser(text string, at func(token.Pos) int, f *ast.FuncDecl, cases []int) string {
	part := func(n ast.Node) string { return text[at(n.Pos()):at(n.End())] }
	name, receiver, n := f.Name.Name, "", 0
	named := func(list *ast.FieldList) (declared, passed []string) {
		for _, field := range list.List {
			for range max(1, len(field.Names)) {
				n++
				arg := fmt.Sprintf("arg__%d", n)
				declared, passed = append(declared, arg+" "+part(field.Type)), append(passed, arg)
				if _, rest := field.Type.(*ast.Ellipsis); rest {
					passed[len(passed)-1] += "..."
				}
			}
		}
		return declared, passed
	}
	call := name
	if f.Recv != nil {
		of, as := named(f.Recv)
		receiver, call = "("+of[0]+") ", as[0]+"."+name
	}
	declared, passed := named(f.Type.Params)
	results, give, then := "", "", "; return"
	if f.Type.Results != nil {
		results, give, then = " "+part(f.Type.Results), "return ", ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nfunc %s%s(%s)%s {\n\tswitch mutant__ {\n", receiver, name, strings.Join(declared, ", "), results)
	for _, i := range cases {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t%s%s__%d(%s)%s\n", i, give, call, i, strings.Join(passed, ", "), then)
	}
	fmt.Fprintf(&b, "\t}\n\t%s%s__0(%s)\n}\n", give, call, strings.Join(passed, ", "))
	return b.String()
}
