package engine

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
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// program is a program that takes the place of lockquake's own client: it speaks docs/protocol.md, and locks in its own
// way.
type program struct {
	run    []string
	folder string   // of this machine, which its nodes are given; "": all that it needs is in its image
	argv   []string // run, with inFolder before the names of what is in the folder
	image  string   // an image key, or an image itself where named
	named  bool
	what   string            // it was built of Go sources: what of
	pins   map[string]string // the versions of modules that it was built with, which its hello must name
}

// inFolder stands for the folder where the program runs. No argument of a program can hold it.
const inFolder = "\x00"

// String is the command, and the image where one is named; "" for no program.
func (c *program) String() string {
	switch {
	case c == nil:
		return ""
	case c.what != "":
		return c.what
	case c.named:
		return strings.Join(c.run, " ") + " in image " + c.image
	}
	return strings.Join(c.run, " ")
}

// replace makes a client's node one of this program.
func (c *program) replace(s *node.Spec) {
	s.Image, s.Named, s.Folder = c.image, c.named, c.folder
	s.Command = func(p node.Place) []string {
		argv := slices.Clone(c.argv)
		for i, word := range argv {
			argv[i] = strings.ReplaceAll(word, inFolder, p.Folder)
		}
		return argv
	}
}

// programs are those of the clients, which take turns.
type programs []*program

// of is the program of a client, by its index; nil: lockquake's own.
func (ps programs) of(client int) *program {
	if len(ps) == 0 {
		return nil
	}
	return ps[client%len(ps)]
}

// String names all of them; "" for none.
func (ps programs) String() string {
	names := make([]string, len(ps))
	for i, c := range ps {
		names[i] = c.String()
	}
	return strings.Join(names, " beside ")
}

// findPrograms finds the files of the programs that the scenario names for its clients.
func (p planner) findPrograms() error {
	path := "workload.client"
	if p.scenario.Workload.Client.IsOwn() {
		path = "backend.client"
	}
	all := p.scenario.Programs()
	if _, declared := p.topology.(listed.Declaring); declared && len(all) == 0 {
		return p.wrong(path, "is missing: only a program of one's own knows the locks of backend %s", p.backend.Name)
	}
	for i, c := range all {
		at := path
		if i > 0 {
			at = fmt.Sprintf("%s.beside[%d]", path, i-1)
		}
		program, err := p.findProgram(i, c, at)
		if err != nil {
			return err
		}
		p.programs = append(p.programs, program)
	}
	return nil
}

func (p planner) findProgram(i int, c scenarios.Client, path string) (*program, error) {
	if c.Go != "" {
		return p.builtProgram(i, c)
	}
	dir, err := ClientFolder(p.scenario, c)
	if err != nil {
		return nil, err
	}
	found := &program{run: c.Run, argv: slices.Clone(c.Run), image: c.Image, named: c.Image != ""}
	found.findFiles(dir)
	if word, ok := found.missingFile(); ok {
		return nil, p.wrong(path+".run", "there is no file %s in %s", word, dir)
	}
	return found, p.findImage(found, path)
}

// findFiles finds the folder of the program and the words that name files in it. A class path of Java is a list of
// names, also of folders.
func (c *program) findFiles(dir string) {
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

func (c *program) isClassPath(i int) bool {
	return i > 0 && slices.Contains([]string{"-cp", "-classpath", "--class-path"}, c.run[i-1])
}

// classFolder is the folder that has all of a class path that is there: target of target/classes:target/lib/*. A folder
// that stands alone is it.
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

// ClientFolder is where relative names of a scenario's program begin.
func ClientFolder(s scenarios.Scenario, c scenarios.Client) (string, error) {
	dir := c.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(s.Folder(), dir)
	}
	return filepath.Abs(dir)
}

// builtProgram is what was built of the sources that the scenario names. It needs no image but its own.
func (p planner) builtProgram(i int, c scenarios.Client) (*program, error) {
	if i >= len(p.Built) || p.Built[i] == "" {
		return nil, MissingError{Text: c.String() + ": it was not built"}
	}
	folder, name := filepath.Split(p.Built[i])
	found := &program{
		run: []string{name}, argv: []string{filepath.Join(inFolder, name)}, folder: filepath.Clean(folder),
		image: node.SelfProgram, what: c.String(), pins: map[string]string{},
	}
	if found.named = c.Image != ""; found.named {
		found.image = c.Image
	}
	for _, text := range c.With {
		if pin, ok := scenarios.ReadPin(text); ok && pin.Version != "" {
			found.pins[pin.Module] = pin.Version
		}
	}
	return found, nil
}

// otherVersions says how what a program tells of itself differs from the versions that were asked for; "" where it does
// not.
func (c *program) otherVersions(h *wire.Hello) string {
	if c == nil {
		return ""
	}
	for _, module := range slices.Sorted(maps.Keys(c.pins)) {
		want, got := c.pins[module], h.Libraries[module]
		if got != want && got != want+"+incompatible" {
			return fmt.Sprintf("its hello says %s %s, and %s was asked for", module, cmp.Or(got, "(not at all)"), want)
		}
	}
	return ""
}

// missingFile returns a word that looks like the program's file, where none is.
func (c *program) missingFile() (string, bool) {
	if !slices.Equal(c.argv, c.run) {
		return "", false
	}
	classes := false // behind a class path org.example.MyLock is no file
	for i, word := range c.run {
		classes = classes || c.isClassPath(i)
		local := !filepath.IsAbs(word) && !strings.HasPrefix(word, "-")
		if local && (strings.ContainsRune(word, '/') || i > 0 && !classes && filepath.Ext(word) != "") {
			return word, true
		}
	}
	return "", false
}

// findImage chooses the image of the program's containers by its first word, where the scenario names none.
func (p planner) findImage(c *program, path string) error {
	first := filepath.Base(c.run[0])
	own, isOwn := strings.CutPrefix(c.argv[0], inFolder)
	switch {
	case c.named:
	case isOwn && executable.RunsAlone(filepath.Join(c.folder, own)):
		c.image = node.SelfProgram // which has nothing that could be in its way
	case strings.HasPrefix(first, "python"):
		c.image = "python"
	case first == "java":
		c.image = "java"
	case inImages(p.Provider):
		return p.wrong(path+".run", "which image has what %s needs is not known: name one in %s.image", first, path)
	default:
		c.image = "client"
	}
	return nil
}

// inImages tells whether the nodes of a provider are containers.
func inImages(p cluster.Provider) bool {
	_, engined := p.(cluster.Engined)
	return engined
}

// checkPrograms refuses what only lockquake's own client can do.
func (p planner) checkPrograms() error {
	if len(p.programs) == 0 {
		return nil
	}
	const path = "workload.client"
	shared := sharedAt(p.workload, p.scenario.Steps)
	switch {
	case p.backend.InProcess:
		return p.wrong(path, "backend %s has no processes: its clients are goroutines of lockquake's own; take another backend", p.backend.Name)
	case p.lock.Absent:
		return p.wrong(path, "lock %s asks nobody, and a program would; leave backend.lock out", p.lock.Name)
	case p.Attached != nil:
		return p.wrong(path, "nobody knows whether a program of one's own keeps to the prefix of an attached service; leave --attach out")
	case p.resource != nil && p.resource.Name != "register":
		return p.wrong("workload.resource.use", "a program of one's own reaches the register alone, and not %s",
			p.resource.Name)
	case p.guard.Sequencer:
		return p.wrong("workload.resource.guard",
			"%s asks the lock service about a lock of lockquake's own, which %s does not take", p.guard.Name,
			p.programs[0].run[0])
	case shared != "":
		return p.wrong(shared, "a program of one's own takes locks in exclusive mode alone")
	}
	if n := len(p.namesOf(node.Client)); n < len(p.programs) {
		return p.wrong(path+".beside", "%d programs take turns, and the clients are %d", len(p.programs), n)
	}
	return nil
}

// lease returns how long a grant of these programs can be valid, in ns: the TTL, which a service may round up to a
// whole second. It is 0 if grants do not expire, or if lockquake's own client takes them: the conformance suite holds
// that one to its TTL.
func (ps programs) lease(l backends.Lock, ttl time.Duration) int64 {
	if len(ps) == 0 || !l.Offers.Expires {
		return 0
	}
	return int64((ttl + time.Second - 1).Truncate(time.Second))
}

// everywhere are the points that every client announces.
var everywhere = []string{workloads.PointAcquired, workloads.PointRead, workloads.PointWrite, workloads.PointRelease}

// checkAnnounced refuses steps of a client, a program of somebody else, that arm a point which it does not announce,
// for that would never be passed, or that give an order which it does not take; and a workload that extends what it
// cannot.
func checkAnnounced(p *Plan, client string, h *wire.Hello) error {
	if h.Process == wire.ProcessClient {
		return nil
	}
	w := p.scenario.Workload
	renews, untold := w.Renew || p.renews, ""
	switch {
	case renews && !h.Takes(wire.DoRenew):
		return UsageError{Text: fmt.Sprintf("%s: workload: %s cannot extend its grants: its hello does not name renew among orders", client, h.Process)}
	case slices.ContainsFunc(p.scenario.Expect,
		func(e scenarios.Expectation) bool { return e.Name == "untold_losses" }):
		untold = "expect.untold_losses"
	case w.Check == "signal" && !renews:
		untold = "workload.check"
	}
	if untold != "" && !h.Tells {
		return UsageError{Text: fmt.Sprintf("%s: %s: %s tells its holders of no loss: its hello does not say so (tells)", client, untold, h.Process)}
	}
	known := slices.Concat(everywhere, h.Points)
	if p.guard.TwoSteps {
		known = append(known, resource.PointTokenChecked)
	}
	for i, st := range p.scenario.Steps {
		k := slices.Index(p.stepUsers, st.User)
		if k < 0 || p.stepUserNode(k) != client {
			continue
		}
		if !h.Takes(st.Do) {
			err := p.scenario.Errorf(stepPath(i, "do"), "%s takes no order %s: its hello does not name it among orders",
				h.Process, st.Do)
			return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
		}
		if st.Do != wire.DoArm || slices.Contains(known, st.Point) {
			continue
		}
		err := p.scenario.Errorf(stepPath(i, "point"), "%s does not announce it; it announces %s", h.Process,
			strings.Join(known, ", "))
		return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
	}
	return nil
}
