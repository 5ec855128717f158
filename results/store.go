package results

import (
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/quorum"
	"github.com/lockquake/lockquake/scenarios"
)

//go:embed verdict.schema.json
var schema []byte

// Schema returns the JSON Schema of verdict.json.
func Schema() []byte { return bytes.Clone(schema) }

// WriteReport writes verdict.json into the run directory atomically.
func WriteReport(dir string, r Report) error {
	return WriteJSON(filepath.Join(dir, FileVerdict), r)
}

// ReadReport reads verdict.json from the run directory.
func ReadReport(dir string) (Report, error) {
	var r Report
	path := filepath.Join(dir, FileVerdict)
	if err := readJSON(path, &r); err != nil {
		return Report{}, err
	}
	if r.Schema != ReportSchema {
		return Report{}, fmt.Errorf("%s: schema is %q; this program reads %q", path, r.Schema, ReportSchema)
	}
	return r, nil
}

// maxReasons bounds the reasons for a run to be unknown.
const maxReasons = 1000

// ReadEnv reads env.json from the run directory.
func ReadEnv(dir string) (Env, error) {
	var e Env
	path := filepath.Join(dir, FileEnv)
	if err := readJSON(path, &e); err != nil {
		return Env{}, err
	}
	if e.Schema != EnvSchema {
		return Env{}, fmt.Errorf("%w: %s: schema is %q; this program reads %q", history.ErrCorrupt, path, e.Schema,
			EnvSchema)
	}
	causes := len(e.Unknown)
	for _, c := range e.Clients {
		if c.Lost {
			causes++
		}
	}
	if causes > maxReasons {
		return Env{}, fmt.Errorf("%w: %s: no run is unknown for %d reasons", history.ErrCorrupt, path, causes)
	}
	if len(e.Replicas) > quorum.MaxReplicas {
		return Env{}, fmt.Errorf("%w: %s: the resource has %d replicas; this program counts the votes of %d",
			history.ErrCorrupt, path, len(e.Replicas), quorum.MaxReplicas)
	}
	return e, nil
}

func readJSON(path string, into any) error {
	b, err := history.ReadOwn(path, history.MostText)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %s: offset %d: %v", history.ErrCorrupt, path, offsetOf(err), err)
	}
	return nil
}

// offsetOf returns the position of a JSON error.
func offsetOf(err error) int64 {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return syntax.Offset
	case errors.As(err, &kind):
		return kind.Offset
	}
	return 0
}

// maxFaults bounds the injections of a run: more than a schedule and its steps make.
const maxFaults = 12_000

// ReadFaults reads faults.jsonl from the run directory; a run without that file has no faults. A line that cannot be
// read is an error that wraps history.ErrCorrupt and says where.
func ReadFaults(dir string) ([]history.Fault, error) {
	path := filepath.Join(dir, FileFaults)
	list, err := readLines[history.Fault](path)
	if len(list) > maxFaults {
		return nil, fmt.Errorf("%w: %s: line %d: no run has so many injections", history.ErrCorrupt, path, maxFaults+1)
	}
	for i := range list {
		f := &list[i]
		giveTraits(f)
		if f.Receipt.Status == "" {
			f.Receipt = history.Receipt{Status: history.Indeterminate, Evidence: "no receipt was taken", Time: f.Start}
		}
	}
	return list, err
}

// ReadObserved reads observed.jsonl from the run directory, like ReadFaults.
func ReadObserved(dir string) ([]history.Observation, error) {
	return readLines[history.Observation](filepath.Join(dir, FileObserved))
}

// readLines reads a file of JSON Lines; a missing file is empty.
func readLines[T any](path string) ([]T, error) {
	b, err := history.ReadOwn(path, history.MostList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []T
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("%w: %s: line %d: %v", history.ErrCorrupt, path, n, err)
		}
		list = append(list, one)
	}
	return list, nil
}

func readScenario(dir string) (scenarios.Scenario, error) {
	path := filepath.Join(dir, FileScenario)
	b, err := history.ReadOwn(path, history.MostText)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	s, err := scenarios.Parse(b, path)
	if err != nil { // a person's file would be fixed by that person; this is a copy
		return s, fmt.Errorf("%w: %v", history.ErrCorrupt, err)
	}
	return s, nil
}

// WriteJSON writes a value atomically as indented JSON.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return WriteAtomically(path, append(b, '\n'))
}

// MakeOwn makes a folder in a directory that another user may own, unless it exists. It refuses a link, through which
// the content would land elsewhere.
func MakeOwn(path string) error {
	err := os.Mkdir(path, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%w: %s: it is no directory of its own", history.ErrCorrupt, path))
	}
	return nil
}

// WriteAtomically writes a file so that readers see the old or the new one. It replaces a link instead of following
// it.
func WriteAtomically(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Chmod(0o644); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
