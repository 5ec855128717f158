package doctor

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
	"github.com/lockquake/lockquake/internal/cluster/executable"
)

// trialCache is what doctor has seen to work with one provider. It is valid for one boot of the machine, one program,
// one user and one engine.
type trialCache struct {
	Key  trialKey       `json:"key"`
	Ways map[string]way `json:"ways"` // by the id of an attempt

	path string
}

// trialKey is everything that an answer may depend on and that can be told at once.
type trialKey struct {
	Boot    string `json:"boot"`
	Program string `json:"program"` // hash of lockquake's own binary
	User    int    `json:"user"`
	Engine  string `json:"engine,omitempty"` // which container engine, and its kernel
}

// openTrialCache reads what was tried before; a cache of another boot, program, user or engine is an empty one.
func openTrialCache(ctx context.Context, p cluster.Provider) (*trialCache, error) {
	hash, err := executable.SelfHash()
	if err != nil {
		return nil, fmt.Errorf("hash the own binary: %w", err)
	}
	key := trialKey{Boot: clock.BootID(), Program: hash, User: os.Getuid()}
	if e, ok := p.(cluster.Engined); ok {
		if key.Engine, err = e.EngineID(ctx); err != nil {
			return nil, err
		}
	}
	c := readTrialCache(trialCachePath(p))
	if c.Key != key || key.Boot == "" {
		c.Key, c.Ways = key, nil
	}
	return c, nil
}

// trialCachePath is where the cache of a provider is kept; "" for a user without such a place, who tries each time.
func trialCachePath(p cluster.Provider) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "lockquake", "doctor-"+p.Name()+".json")
}

// readTrialCache reads a cache of whatever key; one that cannot be read is empty.
func readTrialCache(path string) *trialCache {
	c := &trialCache{path: path}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, c) != nil {
		return &trialCache{path: path}
	}
	return c
}

// note records what worked. What did not is tried again the next time, because the machine may have been busy. What
// the machine lacks is asked each time and never tried.
func (c *trialCache) note(a attempt, w way) {
	if w.Answer == No {
		return
	}
	if c.Ways == nil {
		c.Ways = map[string]way{}
	}
	c.Ways[a.id()] = w
}

// save writes the cache; where that is not possible, nothing is remembered.
func (c *trialCache) save() error {
	if c.path == "" {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("what was tried: %w", err)
	}
	err = os.MkdirAll(filepath.Dir(c.path), 0o755)
	if err == nil {
		err = os.WriteFile(c.path+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(c.path+".new", c.path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
