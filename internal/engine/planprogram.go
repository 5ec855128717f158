package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// program is a program that takes the place of lockquake's own client: it speaks docs/protocol.md, and locks in its own way.
type program struct {
	run    []string
	folder string         // of this machine, which its nodes are given; "": all that it needs is in its image
	files  map[int]string // the words of run that are files there, by their place
	image  string         // an image key, or an image itself where named
	named  bool
}

// String is the command, and the image where one is named; "" for no program.
func (c *program) String() string {
	switch {
	case c == nil:
		return ""
	case c.named:
		return strings.Join(c.run, " ") + " in image " + c.image
	}
	return strings.Join(c.run, " ")
}

// replace makes a client's node one of this program.
func (c *program) replace(s *node.Spec) {
	s.Image, s.Named, s.Folder = c.image, c.named, c.folder
	s.Command = func(p node.Place) []string {
		argv := slices.Clone(c.run)
		for i, name := range c.files {
			argv[i] = filepath.Join(p.Folder, name)
		}
		return argv
	}
}

// findProgram finds the files of the program that the scenario names for its clients.
func (p planner) findProgram() error {
	c, path := p.scenario.Workload.Client, "workload.client"
	if own := p.scenario.Backend.Client; len(c.Run) == 0 {
		c, path = own, "backend.client"
	}
	if _, declared := p.topology.(listed.Declaring); len(c.Run) == 0 {
		if declared {
			return p.wrong("backend.client", "is missing: only a program of one's own knows the locks of backend %s", p.backend.Name)
		}
		return nil
	}
	dir := c.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(p.scenario.Folder(), dir)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	p.program = &program{run: c.Run, files: map[int]string{}, image: c.Image, named: c.Image != ""}
	for i, word := range c.Run {
		path := filepath.Join(dir, word)
		info, err := os.Stat(path)
		if filepath.IsAbs(word) || err != nil || !info.Mode().IsRegular() {
			continue
		}
		if p.program.folder == "" {
			p.program.folder = filepath.Dir(path)
		}
		if name, err := filepath.Rel(p.program.folder, path); err == nil && filepath.IsLocal(name) {
			p.program.files[i] = name
		}
	}
	if word, ok := missingFile(p.program); ok {
		return p.wrong(path+".run", "there is no file %s in %s", word, dir)
	}
	return p.findImage(c, path)
}

// missingFile returns a word that looks like the program's file, where none is.
func missingFile(c *program) (string, bool) {
	if len(c.files) > 0 {
		return "", false
	}
	for i, word := range c.run {
		local := !filepath.IsAbs(word) && !strings.HasPrefix(word, "-")
		if local && (strings.ContainsRune(word, '/') || i > 0 && filepath.Ext(word) != "") {
			return word, true
		}
	}
	return "", false
}

// findImage chooses the image of the program's containers by its first word, where the scenario names none.
func (p planner) findImage(c scenarios.Client, path string) error {
	first := filepath.Base(c.Run[0])
	_, own := p.program.files[0]
	switch {
	case p.program.named:
	case own && cluster.RunsAlone(filepath.Join(p.program.folder, p.program.files[0])):
		p.program.image = node.SelfProgram // which has nothing that could be in its way
	case strings.HasPrefix(first, "python"):
		p.program.image = "python"
	case first == "java":
		p.program.image = "java"
	case p.Provider.Name() == "docker":
		return p.wrong(path+".run", "which image has what %s needs is not known: name one in %s.image", first, path)
	default:
		p.program.image = "client"
	}
	return nil
}

// checkProgram refuses what only lockquake's own client can do.
func (p planner) checkProgram() error {
	if p.program == nil {
		return nil
	}
	const path = "workload.client"
	w, _ := p.workload.(workloads.Sharing)
	switch {
	case p.backend.InProcess:
		return p.wrong(path, "backend %s has no processes: its clients are goroutines of lockquake's own; take another backend", p.backend.Name)
	case p.lock.Name == backends.NoLock:
		return p.wrong(path, "lock %s asks nobody, and a program would; leave backend.lock out", backends.NoLock)
	case p.Attached != nil:
		return p.wrong(path, "nobody knows whether a program of one's own keeps to the prefix of an attached service; leave --attach out")
	case p.resource != nil && p.resource.Name != "register":
		return p.wrong("workload.resource.use", "a program of one's own reaches the register alone, and not %s", p.resource.Name)
	case p.guard.Sequencer:
		return p.wrong("workload.resource.guard", "%s asks the lock service about a lock of lockquake's own, which %s does not take", p.guard.Name, p.program.run[0])
	case w != nil && w.Shares():
		return p.wrong("workload.shared", "a program of one's own takes locks in exclusive mode alone")
	}
	for i, st := range p.scenario.Steps {
		if st.Mode == "shared" {
			return p.wrong(stepPath(i, "mode"), "a program of one's own takes locks in exclusive mode alone")
		}
	}
	return nil
}

// everywhere are the points that every client announces.
var everywhere = []string{workloads.PointAcquired, workloads.PointRead, workloads.PointWrite, workloads.PointRelease}

// checkAnnounced refuses steps of a client, a program of somebody else, that arm a point which it does not announce, for that would never be
// passed, or that give an order which it does not take.
func checkAnnounced(p *Plan, client string, h *wire.Hello) error {
	if h.Process == wire.ProcessClient {
		return nil
	}
	if i := slices.IndexFunc(p.scenario.Expect, func(e scenarios.Expectation) bool { return e.Name == "untold_losses" }); i >= 0 && !h.Tells {
		return UsageError{Text: fmt.Sprintf("%s: expect.untold_losses: %s tells its holders of no loss: its hello does not say so (tells)", client, h.Process)}
	}
	known := slices.Concat(everywhere, h.Points)
	if p.guard.Name == resource.GuardCheckThenWrite {
		known = append(known, resource.PointTokenChecked)
	}
	for i, st := range p.scenario.Steps {
		k := slices.Index(p.stepUsers, st.User)
		if k < 0 || p.stepUserNode(k) != client {
			continue
		}
		if more := st.Do == wire.DoCancel || st.Do == wire.DoClose; more && !slices.Contains(h.Orders, st.Do) {
			err := p.scenario.Errorf(stepPath(i, "do"), "%s takes no order %s: its hello does not name it among orders", h.Process, st.Do)
			return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
		}
		if st.Do != wire.DoArm || slices.Contains(known, st.Point) {
			continue
		}
		err := p.scenario.Errorf(stepPath(i, "point"), "%s does not announce it; it announces %s", h.Process, strings.Join(known, ", "))
		return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
	}
	return nil
}
