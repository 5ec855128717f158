package hunt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/results"
)

// Keep manages what a hunt leaves on disk: the interesting scripts, with their runs as long as there is room.
type Keep struct {
	Dir  string // of the hunt
	Most int64  // bytes of the run directories of interesting scripts; 0: unlimited

	kept  []room // the oldest first
	bytes int64
	// home is the directory of the run that started the servers in use, which may write into it. If homeless is set,
	// it is removed when the servers are gone.
	home     string
	homeless bool
}

// room is a kept run directory.
type room struct {
	dir   string
	bytes int64
}

// DirCorpus holds the interesting scripts, and DirFound those that are handed out.
const (
	DirCorpus = "corpus"
	DirFound  = "found"
)

// Begin has a run report the hunt's progress instead of its own.
func (h *Hunt) Begin(_ campaign.Job, o *engine.Options) {
	o.Progress = func(engine.Progress) { h.tell("") }
}

// End records what a run shows, and removes its directory if it showed nothing new.
func (h *Hunt) End(j campaign.Job, r *campaign.Result) error {
	h.Keep.lives(r)
	if r.NotMade != "" || r.Interrupted {
		return h.Keep.remove(r.At)
	}
	n, dir := h.under, r.At
	n.Found, n.Others = violations(r.Report, h.Goals)
	keep := false
	switch j.Name {
	case jobSearch:
		if err := h.note(r, &n); err != nil {
			return err
		}
		keep = len(n.New) > 0 || slices.ContainsFunc(n.Found, func(v Violation) bool {
			return h.search.finding(v.Goal) == nil
		})
		if len(n.New) > 0 {
			name := fmt.Sprintf("%04d.yaml", len(h.search.corpus.entries)+1)
			if err := writeFile(filepath.Join(h.Keep.Dir, DirCorpus, name), j.Options.Scenario.Text); err != nil {
				return err
			}
		}
	case jobShrink:
		n.Reached, n.Unsure = reached(r.Report, h.shrink.goal, n.Others)
		keep = n.Reached
	}
	if !keep {
		r.Dir = ""
		if err := h.Keep.remove(dir); err != nil {
			return err
		}
	}
	var err error
	if r.Note, err = json.Marshal(n); err != nil {
		return fmt.Errorf("the note of a run: %w", err)
	}
	h.told(j.Name, n)
	return nil
}

// note reads what a run of the search shows.
func (h *Hunt) note(r *campaign.Result, n *Note) error {
	if r.Unjudged != nil || r.Broke != "" {
		return nil
	}
	seen, err := behaviour.Of(r.At)
	if err != nil {
		return fmt.Errorf("%s: %w", r.At, err)
	}
	n.New, n.Had = h.search.corpus.known(seen)
	n.Near, n.Bit = seen.Near, seen.Bit
	return nil
}

// lives records which run started the current servers.
func (k *Keep) lives(r *campaign.Result) {
	if r.At == "" || r.Kept {
		return
	}
	if k.homeless {
		_ = os.RemoveAll(k.home) // its contents are for people, and only take room
	}
	k.home, k.homeless = r.At, false
}

// path returns the directory of a run, which a journal records relative to the hunt's.
func (k *Keep) path(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	abs, err := filepath.Abs(filepath.Join(k.Dir, dir))
	if err != nil {
		return filepath.Join(k.Dir, dir)
	}
	return abs
}

// add keeps an interesting run as long as there is room: the oldest are removed, and their scripts stay.
func (k *Keep) add(dir string) error {
	bytes, err := sizeOf(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed before the hunt was interrupted
	}
	k.kept, k.bytes = append(k.kept, room{dir, bytes}), k.bytes+bytes
	for err == nil && k.Most > 0 && k.bytes > k.Most && len(k.kept) > 0 {
		err = k.remove(k.kept[0].dir)
		k.bytes -= k.kept[0].bytes
		k.kept = k.kept[1:]
	}
	return err
}

// remove removes a run directory, and the link to it if it was the latest.
func (k *Keep) remove(dir string) error {
	switch dir {
	case "":
		return nil
	case k.home:
		k.homeless = true
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	link := filepath.Join(filepath.Dir(dir), "latest")
	if _, err := os.Stat(link); err != nil {
		_ = os.Remove(link) // there may be none
	}
	return nil
}

// Close removes what was kept only for servers that are gone now.
func (k *Keep) Close() error {
	dir := k.home
	k.home = ""
	if !k.homeless {
		return nil
	}
	return k.remove(dir)
}

// sizeOf returns the size of a folder's files in bytes.
func sizeOf(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// writeFile writes a file, and creates its folder.
func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return results.WriteAtomically(file, text)
}

// ScriptsOf returns the scripts of another hunt that were interesting, or broke its lock.
func ScriptsOf(dir string) (out []script.Script, err error) {
	j, err := campaign.Open(dir)
	if err != nil {
		return nil, err
	}
	for _, r := range j.Results() {
		var n Note
		if err := json.Unmarshal(r.Note, &n); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is no hunt: %w", dir, err), j.Close())
		}
		if r.Job == jobSearch && (len(n.New) > 0 || len(n.Found) > 0) {
			out = append(out, n.Script)
		}
	}
	return out, j.Close()
}
