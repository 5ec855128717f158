package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Client is a program that replaces lockquake's own client process: an existing program, or one built from Go
// sources. Without Run and Go it is lockquake's own.
type Client struct {
	Run []string `yaml:"run" json:"run,omitempty"` // the program and its arguments
	// of its containers; "": an image that contains the first word of Run
	Image string `yaml:"image" json:"image,omitempty"`
	// base of Go and of relative names in Run; "": the folder of the scenario's file
	Dir string `yaml:"dir" json:"dir,omitempty"`
	Go  string `yaml:"go" json:"go,omitempty"` // the folder of a main package with a go.mod
	// With lists the modules that replace those of its go.mod in the build, and Tags the build tags.
	With []string `yaml:"with" json:"with,omitempty"` // MODULE@VERSION, MODULE=OTHER@VERSION or MODULE=FOLDER
	Tags []string `yaml:"tags" json:"tags,omitempty"`
	// Beside lists other programs that lock beside this one. Clients take turns: the first runs this program, the
	// next the first of Beside, and so on.
	Beside []Client `yaml:"beside" json:"beside,omitempty"`
}

// All returns the programs of the clients, which take turns: this one, then those beside it. It returns none for
// lockquake's own client.
func (c Client) All() []Client {
	if c.IsOwn() {
		return nil
	}
	first := c
	first.Beside = nil
	return slices.Concat([]Client{first}, c.Beside)
}

// Programs returns the programs that replace lockquake's own client, in the order of the clients. It returns none if
// the clients are lockquake's own.
func (s Scenario) Programs() []Client {
	if !s.Workload.Client.IsOwn() {
		return s.Workload.Client.All()
	}
	return s.Backend.Client.All()
}

// In returns the client with relative folders resolved against the given one, Beside included.
func (c Client) In(folder string) Client {
	if !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(folder, c.Dir)
	}
	c.Beside = slices.Clone(c.Beside)
	for i, b := range c.Beside {
		c.Beside[i] = b.In(folder)
	}
	return c
}

// IsOwn reports whether the program is lockquake's own.
func (c Client) IsOwn() bool { return len(c.Run) == 0 && c.Go == "" }

// Set returns the key=value argument of Scenario.With that gives a scenario's clients this program.
func (c Client) Set() (string, error) {
	text, err := json.Marshal(c)
	return "workload.client=" + string(text), err
}

// String describes the programs in a few words: the command, or the folder with the pinned versions, as in "redsync
// (redsync@v4.0.3)".
func (c Client) String() string {
	if all := c.All(); len(all) > 1 {
		names := make([]string, len(all))
		for i, b := range all {
			names[i] = b.String()
		}
		return strings.Join(names, " beside ")
	}
	if c.Go == "" {
		return strings.Join(c.Run, " ")
	}
	name := c.Go
	if base := filepath.Base(filepath.Join(c.Dir, c.Go)); base != "." {
		name = base
	}
	var pins []string
	for _, text := range c.With {
		if p, ok := ReadPin(text); ok {
			pins = append(pins, shortName(p.Module)+"@"+cmp.Or(p.Version, p.Replacement))
		}
	}
	if len(pins) == 0 {
		return name
	}
	return name + " (" + strings.Join(pins, ", ") + ")"
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// shortName returns the last word of a module path that is not the major version.
func shortName(module string) string {
	if base, last := path.Split(module); majorVersion.MatchString(last) && base != "" {
		module = strings.TrimSuffix(base, "/")
	}
	return path.Base(module)
}

// Pin is a module version that a Go client is built with.
type Pin struct {
	Module      string
	Replacement string // the module or folder that replaces it; "": none
	Version     string // "": the replacement is a folder
}

// ReadPin reads MODULE@VERSION, MODULE=OTHER@VERSION or MODULE=FOLDER, a folder as ./x, ../x or /x.
func ReadPin(text string) (p Pin, ok bool) {
	p.Module = text
	if module, other, replaced := strings.Cut(text, "="); replaced {
		p.Module, p.Replacement = module, other
		if strings.HasPrefix(other, ".") || strings.HasPrefix(other, "/") {
			return p, module != "" && !strings.Contains(module, "@")
		}
	}
	of := &p.Module
	if p.Replacement != "" {
		of = &p.Replacement
	}
	*of, p.Version, ok = strings.Cut(*of, "@")
	return p, ok && p.Module != "" && *of != "" && p.Version != "" && !strings.Contains(p.Module, "@")
}

// clientReader reads `client:` of a section.
type clientReader struct{ document }

// client reads the key client of a section.
func (r clientReader) client(section *ast.MappingNode, path string) (c Client, err error) {
	v := entry(section, "client")
	if v == nil {
		return c, nil
	}
	path += ".client"
	m, err := r.mapping(v.Value, path, v)
	if err != nil {
		return c, err
	}
	if err := decode(r.src, m, path, &c, nil); err != nil {
		return c, err
	}
	return c, r.checkClient(c, path)
}

// checkClient rejects a section that names no program.
func (r clientReader) checkClient(c Client, path string) error {
	switch {
	case c.Go != "" && len(c.Run) > 0:
		return r.errorf(path+".run", "conflicts with %s.go: a client is either a program (run) or built from Go sources (go)",
			path)
	case c.Go == "" && (len(c.With) > 0 || len(c.Tags) > 0):
		return r.missing(path+".go", "the folder of the Go program to build, such as clients/go/redsync")
	case c.Go == "" && (len(c.Run) == 0 || c.Run[0] == ""):
		return r.missing(path+".run", "the program and its arguments, such as [python3, my_lock.py]")
	}
	for _, text := range c.With {
		if _, ok := ReadPin(text); !ok {
			return r.errorf(path+".with",
				"%q has no version: want MODULE@VERSION, MODULE=OTHER@VERSION or MODULE=./FOLDER", text)
		}
	}
	for i, b := range c.Beside {
		at := fmt.Sprintf("%s.beside[%d]", path, i)
		if len(b.Beside) > 0 {
			return r.errorf(at+".beside", "clients alternate: name all of them in %s.beside", path)
		}
		if err := r.checkClient(b, at); err != nil {
			return err
		}
	}
	return nil
}
