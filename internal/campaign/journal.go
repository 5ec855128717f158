package campaign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Schema names the version of the journal, and File the journal in the directory of a campaign.
const (
	Schema = "lockquake/campaign/1"
	File   = "campaign.jsonl"
)

// Header is the first line of a journal: what the campaign is, and where it is made.
type Header struct {
	Schema string `json:"schema"`
	results.Origin
}

// Refuse returns why a campaign cannot go on with what another command, version or machine began: their figures could
// not be put together. what names the thing in the message.
func (h Header) Refuse(what string, now results.Origin) error {
	switch {
	case arguments(h.Command) != arguments(now.Command):
		return fmt.Errorf("the command is another one; that %s was made by: %s", what, h.Command)
	case h.Version != now.Version:
		return fmt.Errorf("that %s was made by version %s, and this is %s", what, h.Version, now.Version)
	}
	for _, key := range slices.Sorted(maps.Keys(now.Host)) {
		if was, is := h.Host[key], now.Host[key]; was != is {
			return fmt.Errorf("that %s was made on another machine: %s was %s, and is %s", what, key, was, is)
		}
	}
	return nil
}

// arguments are what stands behind the program, however that was started.
func arguments(command string) string {
	_, rest, _ := strings.Cut(command, " ")
	return rest
}

// Journal is the results of a campaign in a file, one JSON object a line behind its header. It is made with its first
// result. A line is written whole or, where the machine dies, cut off at the end of the file; whoever opens it then
// drops that line.
type Journal struct {
	Header  Header
	Dropped bool // a last line was cut off, and is gone

	path string
	done []Result
	file *os.File
}

// New returns a journal in a directory that need not be there yet. It begins with the results done, of an older form of
// the same campaign.
func New(dir string, o results.Origin, done ...Result) *Journal {
	return &Journal{Header: Header{Schema, o}, path: filepath.Join(dir, File), done: done}
}

// Open reads the journal in a directory, to go on with it. The error wraps fs.ErrNotExist where there is none.
func Open(dir string) (*Journal, error) {
	j := &Journal{path: filepath.Join(dir, File)}
	text, err := history.ReadFile(j.path, history.MostList)
	if err != nil {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	j.Dropped = len(whole) < len(text)
	n := 0
	lines := bufio.NewReader(bytes.NewReader(whole))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var into any = &j.Header
		if n++; n > 1 {
			j.done = append(j.done, Result{})
			into = &j.done[len(j.done)-1]
		}
		if err := json.Unmarshal(line, into); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", j.path, n, err)
		}
	}
	if j.Header.Schema != Schema {
		return nil, fmt.Errorf("%s: its schema is %q, not %s", j.path, j.Header.Schema, Schema)
	}
	if j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, err
	}
	if j.Dropped {
		err = j.file.Truncate(int64(len(whole)))
	}
	return j, err
}

// Results returns what was written so far.
func (j *Journal) Results() []Result { return slices.Clone(j.done) }

// add appends a result.
func (j *Journal) add(r Result) error {
	if j.file == nil {
		if err := j.begin(); err != nil {
			return err
		}
	}
	j.done = append(j.done, r)
	return j.write(r)
}

// begin makes the file, with what the journal begins with.
func (j *Journal) begin() (err error) {
	if err = os.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return err
	}
	if j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
		return err
	}
	err = j.write(j.Header)
	for _, r := range j.done {
		err = errors.Join(err, j.write(r))
	}
	return err
}

// write appends one line, in one call.
func (j *Journal) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
