package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
)

// book is what doctor has tried with one provider. It holds for one boot of the machine, one program, one user and one engine.
type book struct {
	Key  bookKey        `json:"key"`
	Ways map[string]way `json:"ways"` // by the id of an attempt

	path string
}

// bookKey is everything that an answer may depend on and that can be told at once.
type bookKey struct {
	Boot    string `json:"boot"`
	Program string `json:"program"` // hash of lockquake's own binary
	User    int    `json:"user"`
	Engine  string `json:"engine,omitempty"` // which container engine, and its kernel
}

// openBook reads what was tried before; a book of another boot, program, user or engine is an empty one.
func openBook(ctx context.Context, p cluster.Provider) (*book, error) {
	hash, err := cluster.SelfHash()
	if err != nil {
		return nil, fmt.Errorf("hash the own binary: %w", err)
	}
	key := bookKey{Boot: clock.BootID(), Program: hash, User: os.Getuid()}
	if e, ok := p.(cluster.Engined); ok {
		if key.Engine, err = e.EngineID(ctx); err != nil {
			return nil, err
		}
	}
	b := readBook(bookPath(p))
	if b.Key != key || key.Boot == "" {
		b.Key, b.Ways = key, nil
	}
	return b, nil
}

// bookPath is where the book of a provider is kept; "" for a user without such a place, who tries each time.
func bookPath(p cluster.Provider) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "lockquake", "doctor-"+p.Name()+".json")
}

// readBook reads a book of whatever key; one that cannot be read is empty.
func readBook(path string) *book {
	b := &book{path: path}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, b) != nil {
		return &book{path: path}
	}
	return b
}

// doubts says what of a scenario's faults doctor has tried here in vain. It is no reason not to run: the run's own receipts count. What doctor
// has not tried is not tried now.
func doubts(ctx context.Context, p cluster.Provider, asked []engine.Asked) []string {
	b := readBook(bookPath(p))
	var out []string
	for _, a := range asked {
		column := a.Role
		if a.Linked {
			column = onLink
		}
		for _, id := range slices.Sorted(maps.Keys(b.Ways)) {
			w := b.Ways[id]
			if w.Answer == no && strings.HasPrefix(id, a.Fault+" on "+column+" ") && slices.Equal(choices(w.Keys), choices(a.Keys)) {
				out = append(out, fmt.Sprintf("%s on a %s may not bite here: doctor %s; `lockquake doctor` tries it again", a.Fault, column, w.Reason))
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	if now, err := openBook(ctx, p); err != nil || now.Key != b.Key { // last: it takes the longest to tell
		return nil
	}
	return slices.Compact(out)
}

// choices are the keys of a fault that choose another way to do it.
func choices(keys string) []string {
	var out []string
	for part := range strings.SplitSeq(keys, ",") {
		part = strings.TrimSpace(part)
		if key, _, _ := strings.Cut(part, ":"); key == "how" || key == "engine" || key == "data" {
			out = append(out, part)
		}
	}
	return out
}

// last is what came of an attempt when it was tried last, and whether that stands. What has worked does. A trial in vain is remembered
// for those who are about to run that fault, and is no answer for good: it may have met a busy machine. What the machine lacks is
// asked each time and never tried.
func (b *book) last(a attempt) (w way, stands bool) {
	w, known := b.Ways[a.id()]
	return w, known && w.Answer != no
}

// note takes an answer down.
func (b *book) note(a attempt, w way) {
	if b.Ways == nil {
		b.Ways = map[string]way{}
	}
	b.Ways[a.id()] = w
}

// save writes the book; where that is not possible, nothing is remembered.
func (b *book) save() error {
	if b.path == "" {
		return nil
	}
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("what was tried: %w", err)
	}
	err = os.MkdirAll(filepath.Dir(b.path), 0o755)
	if err == nil {
		err = os.WriteFile(b.path+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(b.path+".new", b.path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
