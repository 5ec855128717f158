package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
)

// book is what doctor has seen to work with one provider. It is valid for one boot of the machine, one program, one
// user and one engine.
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

// note records what worked. What did not is tried again the next time, because the machine may have been busy. What
// the machine lacks is asked each time and never tried.
func (b *book) note(a attempt, w way) {
	if w.Answer == no {
		return
	}
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
