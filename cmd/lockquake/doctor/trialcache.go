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

// trialCache holds the ways that worked with one provider. It is valid for one boot of the machine, one program, one
// user and one container engine.
type trialCache struct {
	Key  trialKey       `json:"key"`
	Ways map[string]way `json:"ways"` // by id of the attempt

	path string
}

// trialKey is all that a result may depend on, as far as it can be read without a trial.
type trialKey struct {
	Boot    string `json:"boot"`
	Program string `json:"program"` // hash of lockquake's own binary
	User    int    `json:"user"`
	Engine  string `json:"engine,omitempty"` // the container engine, and its kernel
}

// openTrialCache reads the cache. A cache of another boot, program, user or engine counts as empty.
func openTrialCache(ctx context.Context, p cluster.Provider) (*trialCache, error) {
	hash, err := executable.SelfHash()
	if err != nil {
		return nil, fmt.Errorf("hash this program's binary: %w", err)
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

// trialCachePath returns the cache file of a provider. It is "" for a user without a cache directory; then nothing is
// remembered.
func trialCachePath(p cluster.Provider) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "lockquake", "doctor-"+p.Name()+".json")
}

// readTrialCache reads a cache with any key. An unreadable one counts as empty.
func readTrialCache(path string) *trialCache {
	c := &trialCache{path: path}
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, c) != nil {
		return &trialCache{path: path}
	}
	return c
}

// note records a way that worked. Failures are tried again next time, because the machine may have been busy. Missing
// requirements are checked each time without a trial.
func (c *trialCache) note(a attempt, w way) {
	if w.Answer == No {
		return
	}
	if c.Ways == nil {
		c.Ways = map[string]way{}
	}
	c.Ways[a.id()] = w
}

// save writes the cache, unless there is no place for it.
func (c *trialCache) save() error {
	if c.path == "" {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cache of trials: %w", err)
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
