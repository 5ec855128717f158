package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/scenarios"
)

// module is the path of this tree's own module.
const module = "github.com/lockquake/lockquake/"

// program is what makes the runs; the packages that it is built of are all that a figure can depend on.
const program = "./cmd/lockquake"

// packages is what the program is built of, by import path.
type packages map[string]pkg

// pkg is one package, as go list tells.
type pkg struct {
	ImportPath string
	Imports    []string
	Module     *struct {
		Path, Version, GoVersion string
		Main                     bool
	}
}

// listPackages asks go for the packages that the program is built of.
func listPackages(top string) (packages, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", program)
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("go list %s: %w", program, err)
	}
	all := packages{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", program, err)
		}
		all[p.ImportPath] = p
	}
}

// needs is what a row's figures depend on: folders of this tree, each without those below it, and modules of others in their
// versions, Go's own among them.
type needs struct{ folders, modules []string }

// of walks from the packages that carry out a run of the row, and does not go into those of other services, nor into what draws
// reports and what only knows lists and flags.
func (all packages) of(row Row) needs {
	services := row.services()
	skip := func(own string) bool {
		service, isService := strings.CutPrefix(own, "backends/")
		service, _, _ = strings.Cut(service, "/")
		return isService && !slices.Contains(services, service) || own == "results/report" || strings.HasPrefix(own, "cmd/")
	}
	next := []string{"internal/engine", "internal/client", "internal/agent", "workloads/resource", "results"}
	for path := range all {
		own, isOwn := strings.CutPrefix(path, module)
		if folder, ok := strings.CutPrefix(own, "backends/"); isOwn && ok && slices.ContainsFunc(services, func(s string) bool { return folder == s || strings.HasPrefix(folder, s+"/") }) {
			next = append(next, own)
		}
	}
	for i, own := range next {
		next[i] = module + own
	}
	var out needs
	seen := map[string]bool{}
	for len(next) > 0 {
		path := next[len(next)-1]
		next = next[:len(next)-1]
		p, known := all[path]
		own, isOwn := strings.CutPrefix(path, module)
		if seen[path] || !known || isOwn && skip(own) {
			continue
		}
		seen[path] = true
		next = append(next, p.Imports...)
		switch {
		case isOwn:
			out.folders = append(out.folders, own)
			out.modules = append(out.modules, "go "+p.Module.GoVersion)
		case p.Module != nil:
			out.modules = append(out.modules, p.Module.Path+" "+p.Module.Version)
		}
	}
	slices.Sort(out.folders)
	slices.Sort(out.modules)
	out.modules = slices.Compact(out.modules)
	return out
}

// services are the folders in backends/ that a row's nodes come out of: the lock service's, and that of the resource where it is
// one of them too.
func (r Row) services() []string {
	out := []string{all.Folder(r.Backend)}
	s, err := r.scenario()
	if err != nil {
		return out
	}
	use := s.Workload.Resource.Use
	if service := slices.ContainsFunc(all.All(), func(b backends.Backend) bool { return b.Name == use }); service && use != out[0] {
		out = append(out, use)
	}
	return out
}

// scenario is what the row runs, its keys set.
func (r Row) scenario() (scenarios.Scenario, error) {
	if r.Text != "" {
		return scenarios.Parse([]byte(r.Text), r.Scenario+".yaml")
	}
	found, err := scenarios.Load(r.Scenario)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	if len(found) != 1 {
		return scenarios.Scenario{}, fmt.Errorf("%s names %d scenarios", r.Scenario, len(found))
	}
	return found[0].With(r.Set)
}

// paths are the files that a row's figures depend on: the packages, and how the images of its nodes are made. What matters of the
// scenario's file is its text, as it is run.
func (r Row) paths(n needs) []string {
	var out []string
	for _, f := range n.folders {
		out = append(out, f+"/*")
	}
	for _, s := range r.services() {
		out = append(out, "images/"+s+"*/**")
	}
	return out
}
