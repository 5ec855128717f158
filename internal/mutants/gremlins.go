package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// swaps maps each kind of mutation of gremlins to its replacements.
var swaps = map[string]map[string]string{
	"ARITHMETIC_BASE":       {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
	"CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"},
	"INCREMENT_DECREMENT":   {"++": "--", "--": "++"},
	"INVERT_NEGATIVES":      {"-": "+"},
}

// generated returns the mutants that gremlins finds in a folder, to be tried with that folder's tests. Gremlins
// itself would try each with the tests of the mutant's own package only, one after the other. The reasons why some
// are equivalent are taken from known.
func generated(ctx context.Context, gremlins string, folders []string, known []Mutant) (all []Mutant, err error) {
	reasons := map[string]string{} // by file and the mutated code
	for _, m := range known {
		key, err := m.becomes(".")
		if err != nil {
			return nil, err
		}
		reasons[key] = m.Equivalent
	}
	for _, folder := range folders {
		found, err := look(ctx, gremlins, folder)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			key, err := m.becomes(".")
			if err != nil {
				return nil, err
			}
			m.Equivalent = reasons[key]
			all = append(all, m)
		}
	}
	return all, nil
}

// becomes returns a text that is the same for two mutants that change a file in the same way, layout aside.
func (m Mutant) becomes(root string) (string, error) {
	text, err := m.apply(root)
	return m.at.file + "\x00" + strings.Join(lexemes(string(text)), " "), err
}

// look lists the mutants that gremlins finds in one folder.
func look(ctx context.Context, gremlins, folder string) (all []Mutant, err error) {
	file := filepath.Join("build", "mutants", "found-"+strings.ReplaceAll(folder, "/", "-")+".json")
	run := exec.CommandContext(ctx, gremlins, "unleash", "--dry-run", "--silent", "--coverpkg", "./"+folder+"/...",
		"-E", "(report|capacity)/", "-o", file, "./"+folder)
	run.Stderr = os.Stderr
	if err := run.Run(); err != nil {
		return nil, fmt.Errorf("gremlins: %s: %w", folder, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var found struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []mutation
		}
	}
	if err := json.Unmarshal(b, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, f := range found.Files {
		name := path.Join(folder, f.Name)
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			return nil, err
		}
		for _, g := range f.Mutations {
			if g.Status == "RUNNABLE" {
				all = append(all, g.mutant(name, string(text)))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Mutant) int {
		return cmp.Or(cmp.Compare(a.at.file, b.at.file), cmp.Compare(a.at.from, b.at.from))
	})
	return all, nil
}

// mutation is one change that gremlins makes at a place.
type mutation struct {
	Type, Status string
	Line, Column int // from 1; the column in bytes
}

func (g mutation) mutant(file, text string) Mutant {
	from := g.Column - 1
	for range g.Line - 1 {
		from += strings.IndexByte(text[from-g.Column+1:], '\n') + 1
	}
	m := Mutant{
		Package: path.Dir(file), Why: fmt.Sprintf("%d:%d %s", g.Line, g.Column, g.Type),
		at: place{file, from, from},
	}
	for _, n := range []int{2, 1} { // "<=" before "<"
		old := text[from : from+n]
		if to, ok := swaps[g.Type][old]; ok {
			m.Old, m.New, m.at.to = old, to, from+n
			break
		}
	}
	return m
}
