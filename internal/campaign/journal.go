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

// Schema is the version of the journal's format. File is the journal's name in the directory of a campaign.
const (
	Schema = "lockquake/campaign/1"
	File   = "campaign.jsonl"
)

// Header is the first line of a journal: the campaign's command, and the program and machine that make it.
type Header struct {
	Schema string `json:"schema"`
	results.Origin
}

// Refuse returns an error if another command, version or machine began the campaign: their figures are not
// comparable. what names the campaign in the message.
func (h Header) Refuse(what string, now results.Origin) error {
	switch {
	case arguments(h.Command) != arguments(now.Command):
		return fmt.Errorf("the command differs; that %s was made by: %s", what, h.Command)
	case h.Version != now.Version:
		return fmt.Errorf("that %s was made by version %s, but this is %s", what, h.Version, now.Version)
	}
	for _, key := range slices.Sorted(maps.Keys(now.Host)) {
		if was, is := h.Host[key], now.Host[key]; was != is {
			return fmt.Errorf("that %s was made on another machine: %s was %s, but is %s", what, key, was, is)
		}
	}
	return nil
}

// arguments returns the command without the program's path.
func arguments(command string) string {
	_, rest, _ := strings.Cut(command, " ")
	return rest
}

// Journal holds the results of a campaign in a file: a header and one JSON object a line. The first result creates
// the file. If the machine dies during a write, the last line may be cut off; Open drops it.
type Journal struct {
	Header  Header
	Dropped bool // a last line was cut off and dropped

	path string
	done []Result
	file *os.File
}

// New returns a journal in a directory that need not exist yet. It begins with the results in done, which come from
// an older form of the same campaign.
func New(dir string, o results.Origin, done ...Result) *Journal {
	return &Journal{Header: Header{Schema, o}, path: filepath.Join(dir, File), done: done}
}

// Open reads the journal in a directory, to resume the campaign. The error wraps fs.ErrNotExist if there is none.
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

// Results returns the results so far.
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

// begin creates the file and writes the header and the results done before.
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
