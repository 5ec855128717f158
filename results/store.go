package results

import (
	"bufio"
	"bytes"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

//go:embed verdict.schema.json
var schema []byte

// Schema returns the JSON Schema of verdict.json.
func Schema() []byte { return bytes.Clone(schema) }

// WriteReport writes verdict.json into the run directory; a reader sees the old one or the new one.
func WriteReport(dir string, r Report) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", FileVerdict, err)
	}
	return writeAtomically(filepath.Join(dir, FileVerdict), append(b, '\n'))
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

// ReadEnv reads env.json from the run directory.
func ReadEnv(dir string) (Env, error) {
	var e Env
	path := filepath.Join(dir, FileEnv)
	if err := readJSON(path, &e); err != nil {
		return Env{}, err
	}
	if e.Schema != EnvSchema {
		return Env{}, fmt.Errorf("%s: schema is %q; this program reads %q", path, e.Schema, EnvSchema)
	}
	return e, nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReadFaults reads faults.jsonl from the run directory; a run without that file has no faults. A line that cannot be
// read is an error that wraps history.ErrCorrupt and says where.
func ReadFaults(dir string) ([]history.Fault, error) {
	list, err := readLines[history.Fault](filepath.Join(dir, FileFaults))
	for i := range list {
		if f := &list[i]; f.Receipt.Status == "" {
			f.Receipt = history.Receipt{Status: history.Indeterminate, Evidence: "no receipt was taken", Time: f.Start}
		}
	}
	return list, err
}

// ReadObserved reads observed.jsonl from the run directory, as ReadFaults does faults.jsonl.
func ReadObserved(dir string) ([]history.Observation, error) {
	return readLines[history.Observation](filepath.Join(dir, FileObserved))
}

// readLines reads a file of JSON Lines; one that is not there is empty.
func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	var list []T
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var one T
			if err := json.Unmarshal(line, &one); err != nil {
				return nil, fmt.Errorf("%w: %s: line %d: %v", history.ErrCorrupt, path, n, err)
			}
			list = append(list, one)
		}
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
}

func readScenario(dir string) (scenarios.Scenario, error) {
	path := filepath.Join(dir, FileScenario)
	b, err := os.ReadFile(path)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	return scenarios.Parse(b, path)
}
