package plan

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// Program is a program that replaces lockquake's own client: it speaks docs/protocol.md, and has its own lock.
type Program struct {
	run    []string
	folder string   // on this machine, copied to its nodes; "": its image has all it needs
	argv   []string // run, with inFolder before the names of files in the folder
	image  string   // an image key, or an image itself if named
	named  bool
	What   string            // what it was built from, if from Go sources
	Pins   map[string]string // the versions of modules that it was built with; its hello must name them
}

// inFolder stands for the folder where the program runs. No argument of a program can contain it.
const inFolder = "\x00"

// String returns the command, and the image if one is named; "" for no program.
func (c *Program) String() string {
	switch {
	case c == nil:
		return ""
	case c.What != "":
		return c.What
	case c.named:
		return strings.Join(c.run, " ") + " in image " + c.image
	}
	return strings.Join(c.run, " ")
}

// replace makes a client's node run this program.
func (c *Program) replace(s *node.Spec) {
	s.Image, s.Named, s.Folder = c.image, c.named, c.folder
	s.Command = func(p node.Place) []string {
		argv := slices.Clone(c.argv)
		for i, word := range argv {
			argv[i] = strings.ReplaceAll(word, inFolder, p.Folder)
		}
		return argv
	}
}

// Programs are the programs of the clients, which take turns.
type Programs []*Program

// Of returns the program of a client, by its index; nil is lockquake's own.
func (ps Programs) Of(client int) *Program {
	if len(ps) == 0 {
		return nil
	}
	return ps[client%len(ps)]
}

// String lists all of them; "" for none.
func (ps Programs) String() string {
	names := make([]string, len(ps))
	for i, c := range ps {
		names[i] = c.String()
	}
	return strings.Join(names, " beside ")
}

// programFinder finds the programs of the clients.
type programFinder struct {
	plan *Plan
	from Request
}

// find finds the files of the programs that the scenario names for its clients.
func (p programFinder) find() error {
	path := "workload.client"
	if p.plan.Scenario.Workload.Client.IsOwn() {
		path = "backend.client"
	}
	all := p.plan.Scenario.Programs()
	if _, declared := p.plan.Topology.(listed.Declaring); declared && len(all) == 0 {
		return p.plan.wrong(path, "is missing: backend %s needs a client program of your own",
			p.plan.Backend.Name)
	}
	for i, c := range all {
		at := path
		if i > 0 {
			at = fmt.Sprintf("%s.beside[%d]", path, i-1)
		}
		program, err := p.one(i, c, at)
		if err != nil {
			return err
		}
		p.plan.Programs = append(p.plan.Programs, program)
	}
	return nil
}

func (p programFinder) one(i int, c scenarios.Client, path string) (*Program, error) {
	if c.Go != "" {
		return p.built(i, c)
	}
	dir, err := ClientFolder(p.plan.Scenario, c)
	if err != nil {
		return nil, err
	}
	found := &Program{run: c.Run, argv: slices.Clone(c.Run), image: c.Image, named: c.Image != ""}
	found.findFiles(dir)
	if word, ok := found.missingFile(); ok {
		return nil, p.plan.wrong(path+".run", "there is no file %s in %s", word, dir)
	}
	return found, p.image(found, path)
}

// findFiles finds the folder of the program and the words that name files in it. A class path of Java is a list of
// names, also of folders.
func (c *Program) findFiles(dir string) {
	for i, word := range c.run {
		names := []string{word}
		if c.isClassPath(i) {
			names = strings.Split(word, ":")
			c.folder = cmp.Or(c.folder, classFolder(dir, names))
		}
		for j, name := range names {
			path := filepath.Join(dir, name)
			info, err := os.Stat(strings.TrimSuffix(path, "/*"))
			if name == "" || filepath.IsAbs(name) || err != nil ||
				!(info.Mode().IsRegular() || info.IsDir() && c.isClassPath(i)) {
				continue
			}
			c.folder = cmp.Or(c.folder, filepath.Dir(path))
			if below, err := filepath.Rel(c.folder, path); err == nil && filepath.IsLocal(below) {
				names[j] = filepath.Join(inFolder, below)
			}
		}
		c.argv[i] = strings.Join(names, ":")
	}
}

func (c *Program) isClassPath(i int) bool {
	return i > 0 && slices.Contains([]string{"-cp", "-classpath", "--class-path"}, c.run[i-1])
}

// classFolder returns the folder that contains all existing parts of a class path: target for
// target/classes:target/lib/*. A folder that stands alone is returned itself.
func classFolder(dir string, names []string) string {
	folder := ""
	for _, name := range names {
		path := filepath.Join(dir, strings.TrimSuffix(name, "/*"))
		info, err := os.Stat(path)
		if name == "" || filepath.IsAbs(name) || err != nil {
			continue
		}
		if !info.IsDir() {
			path = filepath.Dir(path)
		}
		folder = cmp.Or(folder, path)
		for below, err := filepath.Rel(folder, path); err != nil || !filepath.IsLocal(below); below,
			err = filepath.Rel(folder, path) {
			folder = filepath.Dir(folder)
		}
	}
	return folder
}

// ClientFolder returns the folder that relative names of a scenario's program refer to.
func ClientFolder(s scenarios.Scenario, c scenarios.Client) (string, error) {
	dir := c.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Folder(), dir)
	}
	return filepath.Abs(dir)
}

// built returns the program built from the sources that the scenario names. It needs no image but its own.
func (p programFinder) built(i int, c scenarios.Client) (*Program, error) {
	if i >= len(p.from.Built) || p.from.Built[i] == "" {
		return nil, MissingError{Text: c.String() + ": it was not built"}
	}
	folder, name := filepath.Split(p.from.Built[i])
	found := &Program{
		run: []string{name}, argv: []string{filepath.Join(inFolder, name)}, folder: filepath.Clean(folder),
		image: node.SelfProgram, What: c.String(), Pins: map[string]string{},
	}
	if found.named = c.Image != ""; found.named {
		found.image = c.Image
	}
	for _, text := range c.With {
		if pin, ok := scenarios.ReadPin(text); ok && pin.Version != "" {
			found.Pins[pin.Module] = pin.Version
		}
	}
	return found, nil
}

// OtherVersions describes how the versions in a program's hello differ from those requested; "" if they do not.
func (c *Program) OtherVersions(h *wire.Hello) string {
	if c == nil {
		return ""
	}
	for _, module := range slices.Sorted(maps.Keys(c.Pins)) {
		want, got := c.Pins[module], h.Libraries[module]
		if got != want && got != want+"+incompatible" {
			return fmt.Sprintf("its hello has %s %s, but %s was requested", module, cmp.Or(got, "(not at all)"), want)
		}
	}
	return ""
}

// missingFile returns a word that looks like the program's file but does not exist.
func (c *Program) missingFile() (string, bool) {
	if !slices.Equal(c.argv, c.run) {
		return "", false
	}
	classes := false // after a class path, org.example.MyLock is not a file
	for i, word := range c.run {
		classes = classes || c.isClassPath(i)
		local := !filepath.IsAbs(word) && !strings.HasPrefix(word, "-")
		if local && (strings.ContainsRune(word, '/') || i > 0 && !classes && filepath.Ext(word) != "") {
			return word, true
		}
	}
	return "", false
}

// image chooses the image of the program's containers by its first word, if the scenario names none.
func (p programFinder) image(c *Program, path string) error {
	first := filepath.Base(c.run[0])
	own, isOwn := strings.CutPrefix(c.argv[0], inFolder)
	switch {
	case c.named:
	case isOwn && executable.RunsAlone(filepath.Join(c.folder, own)):
		c.image = node.SelfProgram // it contains nothing that could interfere
	case strings.HasPrefix(first, "python"):
		c.image = "python"
	case first == "java":
		c.image = "java"
	case first == "node":
		c.image = "nodejs"
	case inImages(p.from.Provider):
		return p.plan.wrong(path+".run", "the image for %s is unknown: name one in %s.image", first,
			path)
	default:
		c.image = "client"
	}
	return nil
}

// inImages reports whether the nodes of a provider are containers.
func inImages(p cluster.Provider) bool {
	_, engined := p.(cluster.Engined)
	return engined
}

// check rejects what only lockquake's own client can do.
func (p programFinder) check() error {
	if len(p.plan.Programs) == 0 {
		return nil
	}
	const path = "workload.client"
	shared := sharedAt(p.plan.Workload, p.plan.Scenario.Steps)
	switch {
	case p.plan.Backend.InProcess:
		return p.plan.wrong(path, "backend %s has no processes: its clients are goroutines of lockquake; use another backend",
			p.plan.Backend.Name)
	case p.plan.Lock.Absent:
		return p.plan.wrong(path, "lock %s sends no requests, but a program would; omit backend.lock", p.plan.Lock.Name)
	case p.from.Attached != nil:
		return p.plan.wrong(path, "a program of your own may ignore the prefix of an attached service; omit --attach")
	case p.plan.Resource != nil && p.plan.Resource.Name != "register":
		return p.plan.wrong("workload.resource.use", "a program of your own can only use the register, not %s",
			p.plan.Resource.Name)
	case p.plan.Guard.Sequencer:
		return p.plan.wrong("workload.resource.guard",
			"%s asks the lock service about one of lockquake's own locks, which %s does not use", p.plan.Guard.Name,
			p.plan.Programs[0].run[0])
	case shared != "":
		return p.plan.wrong(shared, "a program of your own takes locks only in exclusive mode")
	}
	if n := len(p.plan.Specs.Of(node.Client)); n < len(p.plan.Programs) {
		return p.plan.wrong(path+".beside", "%d programs alternate, but there are %d clients", len(p.plan.Programs), n)
	}
	return nil
}

// Lease returns how long a grant of these programs can be valid, in ns: the TTL, which a service may round up to a
// whole second. It is 0 if grants do not expire. It is also 0 for lockquake's own client, which the conformance suite
// holds to its TTL.
func (ps Programs) Lease(l backends.Lock, ttl time.Duration) int64 {
	if len(ps) == 0 || !l.Offers.Expires {
		return 0
	}
	return int64((ttl + time.Second - 1).Truncate(time.Second))
}
