package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// cache stores the outcome of each mutant, so that an interrupted run can be resumed.
type cache struct {
	path string
	mu   sync.Mutex
	seen map[string]Verdict // by the mutant's key
	sums map[string]string  // by folder
}

func openCache(path string) (*cache, error) {
	c := &cache{path: path, seen: map[string]Verdict{}, sums: map[string]string{}}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, os.MkdirAll(filepath.Dir(path), 0o755)
	case err != nil:
		return nil, err
	}
	return c, json.Unmarshal(b, &c.seen)
}

// verdict returns the stored verdict of a mutant of exactly these sources, or else that of try. With again, a mutant
// that was killed once counts as killed, even if the sources have changed since.
func (c *cache) verdict(m Mutant, again bool, try func() Verdict) Verdict {
	sum := sha256.Sum256([]byte(fmt.Sprint(m.Package, m.Func, "\x00", m.Old, "\x00", m.New, m.at)))
	key := hex.EncodeToString(sum[:8])
	sources, err := c.sources(m)
	if err != nil {
		return Verdict{Outcome: Broken, By: err.Error()}
	}
	c.mu.Lock()
	known, ok := c.seen[key]
	c.mu.Unlock()
	if ok && (known.Sources == sources || again && known.Outcome == Killed) {
		return known
	}
	v := try()
	v.Sources = sources
	if v.Outcome == Broken {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[key] = v
	b, err := json.MarshalIndent(c.seen, "", " ")
	if err == nil {
		err = os.WriteFile(c.path, b, 0o600)
	}
	if err != nil {
		return Verdict{Outcome: Broken, By: "the cache: " + err.Error()}
	}
	return v
}

// judging lists the folders that every verdict depends on, whichever of them is mutated.
var judging = []string{"history", "results", "scenarios", "lock"}

// sources returns the hash of the tested packages and of what they depend on.
func (c *cache) sources(m Mutant) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := sha256.New()
	for _, dir := range append(m.packages(), judging...) {
		sum, ok := c.sums[dir]
		if !ok {
			var err error
			if sum, err = sumOf(dir); err != nil {
				return "", err
			}
			c.sums[dir] = sum
		}
		_, _ = h.Write([]byte(dir + sum))
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// sumOf returns the hash of all files of a folder and its testdata, by name.
func sumOf(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		_, _ = h.Write([]byte(path + "\x00"))
		_, _ = h.Write(b)
		return err
	})
	return string(h.Sum(nil)), err
}
