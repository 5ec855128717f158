package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

// SweepOptions says what to remove.
type SweepOptions struct {
	// All also takes what was kept on purpose, what belongs to a supervisor that cannot be looked for from here
	// (another machine or pid namespace), and the images of the own binary. The things of a supervisor that is seen to
	// run are never touched.
	All bool
	// Images takes the images of the own binary but for the newest, which an earlier build left.
	Images bool
	Log    *slog.Logger // may be nil
}

// Swept is what Sweep removed, by name, and what it left.
type Swept struct {
	Containers  []string `json:"containers,omitempty"`
	Networks    []string `json:"networks,omitempty"`
	Processes   []string `json:"processes,omitempty"`
	Links       []string `json:"links,omitempty"` // with the namespaces and the bridge behind them
	Directories []string `json:"directories,omitempty"`
	Images      []string `json:"images,omitempty"`
	Clocks      []string `json:"clocks,omitempty"` // set right, of processes that go on
	Frozen      []string `json:"frozen,omitempty"` // control groups in which processes were frozen: thawed
	// Left names what was found and not removed, with the reason.
	Left []string `json:"left,omitempty"`
}

// Empty tells whether nothing was removed.
func (s Swept) Empty() bool {
	return len(s.Containers)+len(s.Networks)+len(s.Processes)+len(s.Links)+len(s.Directories)+len(s.Images)+len(s.Clocks)+len(s.Frozen) == 0
}

// String says in one line how much was removed.
func (s Swept) String() string {
	var parts []string
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	count(len(s.Containers), "containers")
	count(len(s.Networks), "networks")
	count(len(s.Processes), "processes")
	count(len(s.Links), "links")
	count(len(s.Directories), "directories")
	count(len(s.Images), "images")
	count(len(s.Clocks), "clocks")
	count(len(s.Frozen), "frozen groups")
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Sweep removes what runs left behind whose supervisor is dead: processes (stopped ones too), network links with their
// namespaces, directories, containers and networks. What a dead agent left frozen is thawed, and the clocks that it left moved, in processes
// that go on, are set right. It does what it can and returns all errors.
func Sweep(ctx context.Context, o SweepOptions) (Swept, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var s Swept
	errs := []error{s.local(ctx, o)}
	d, err := newDocker(DockerOptions{Log: o.Log})
	switch {
	case errors.As(err, new(chaos.Unavailable)):
		o.Log.Debug("no containers to sweep", "reason", err)
	case err != nil:
		errs = append(errs, err)
	default:
		errs = append(errs, s.engine(ctx, d, o))
	}
	// Last: what is left runs on, and is to have the machine's clock again.
	clocks, err := agent.RestoreClocks(ctx)
	s.Clocks = clocks
	return s, errors.Join(append(errs, err)...)
}

// local removes what is no container's.
func (s *Swept) local(ctx context.Context, o SweepOptions) error {
	first := s.thaw(ctx) // what is frozen cannot be killed
	killed := s.processes(ctx, o)
	again := s.thaw(ctx) // an agent may have been killed in the middle of its own thaw
	return errors.Join(first, killed, again, s.links(o), s.directories(o))
}

// thaw takes away what dead agents left frozen.
func (s *Swept) thaw(ctx context.Context) error {
	groups, err := agent.RestoreFrozen(ctx)
	s.Frozen = append(s.Frozen, groups...)
	return err
}

// leave notes what is not removed; the things of runs that are still going on are not worth a word.
func (s *Swept) leave(what string, o owner) {
	switch {
	case o.fate() == alive:
	case o.Keep:
		s.Left = append(s.Left, what+": kept on purpose")
	default:
		s.Left = append(s.Left, what+": whether its supervisor runs cannot be seen from here")
	}
}

// directories removes the state and data of local runs.
func (s *Swept) directories(o SweepOptions) error {
	dir := stateDirName()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the state directory: %w", err)
	}
	if dir, err = stateDir(); err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		own, known := readOwner(path)
		if !known && !abandoned(e) || known && !own.leftover(o.All) {
			if known {
				s.leave(path, own)
			}
			continue
		}
		err := sweepGroups(path) // first: the directory names them
		if err == nil {
			err = os.RemoveAll(path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", path, err))
			continue
		}
		s.Directories = append(s.Directories, path)
	}
	return errors.Join(errs...)
}

func readOwner(dir string) (owner, bool) {
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return owner{}, false
	}
	return ownerTag(strings.TrimSpace(string(b)))
}

// abandoned tells whether a directory without owner is no run that is just beginning.
func abandoned(e os.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > time.Minute
}

// engine removes containers and then the networks that they were in.
func (s *Swept) engine(ctx context.Context, d *docker, o SweepOptions) error {
	marked := make(client.Filters).Add("label", label+"run")
	boxes, err := d.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: marked})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var g errgroup.Group
	emptied := map[string]bool{} // runs whose containers are removed here
	for _, c := range boxes.Items {
		own, name := ownerOf(c.Labels), strings.TrimPrefix(strings.Join(c.Names, " "), "/")
		if !own.leftover(o.All) {
			s.leave("container "+name, own)
			continue
		}
		s.Containers, emptied[own.Run] = append(s.Containers, name), true
		g.Go(func() error { return removeContainer(ctx, d.api, c.ID) })
	}
	errs := []error{g.Wait()}
	networks, err := d.api.NetworkList(ctx, client.NetworkListOptions{Filters: marked})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list networks: %w", err))...)
	}
	for _, n := range networks.Items {
		own := ownerOf(n.Labels)
		if !own.leftover(o.All) {
			s.leave("network "+n.Name, own)
			continue
		}
		tries := 1 // the engine can keep a network for ever that it believes in use; waiting for it would cost every run the time
		if emptied[own.Run] {
			tries = networkTries
		}
		if err := removeNetwork(ctx, d.api, n.ID, tries); err != nil {
			errs = append(errs, err)
			continue
		}
		s.Networks = append(s.Networks, n.Name)
	}
	if o.All || o.Images {
		errs = append(errs, s.images(ctx, d, o.All))
	}
	slices.Sort(s.Containers)
	return errors.Join(errs...)
}

// images removes the images of the own binary that no container uses: all, or all but the newest.
func (s *Swept) images(ctx context.Context, d *docker, all bool) error {
	list, err := d.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", label+"self")})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b image.Summary) int { return cmp.Compare(b.Created, a.Created) })
	for i, one := range list.Items {
		if i == 0 && !all {
			continue
		}
		// An image with several names goes with the last of them. Older engines call one without any "<none>:<none>".
		names := slices.DeleteFunc(slices.Clone(one.RepoTags), func(n string) bool { return strings.HasPrefix(n, "<none>") })
		if len(names) == 0 {
			names = []string{one.ID}
		}
		for _, name := range names {
			if _, err := d.api.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true}); err != nil {
				s.Left = append(s.Left, "image "+name+": "+err.Error())
				continue
			}
			s.Images = append(s.Images, name)
		}
	}
	return nil
}
