package main

import (
	"bytes"
	_ "embed" // the template
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/scenarios"
)

//go:embed new.yaml.tmpl
var newText string

var newTemplate = template.Must(template.New("new").Parse(newText))

// newTTL is the TTL of a new scenario, if the lock supports it.
const newTTL = 2 * time.Second

func newCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:     "new NAME --backend BACKEND",
		Short:   "Write a commented scenario to edit and run",
		Example: "  lockquake new my-story --backend redis && lockquake run my-story.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("new: give the scenario one name, as in `lockquake new my-story --backend redis`")
			}
			return nil
		},
	}
	backend := c.Flags().String("backend", "", "the backend; 'lockquake list backends' has them")
	lockName := c.Flags().String("lock", "", "one of its locks; default: the backend's first")
	words.CompleteBackendAndLock(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		b, locks, err := suite.Locks(*backend, *lockName, nodes.OwnBackends(nodes.Catalog()))
		if err != nil {
			return cli.Usagef("new: %v", err)
		}
		text, err := newScenario(args[0], b, locks[0])
		var wrong *scenarios.Error
		if errors.As(err, &wrong) {
			return cli.Usagef("new: %s", wrong.Message)
		}
		if err != nil {
			return err
		}
		file := args[0] + ".yaml"
		if err := writeNew(file, text); err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "%s\n", file)
		fmt.Fprintf(std.Err, "run it with `lockquake run %s`; docs/scenarios.md has all keys, and `lockquake list` all names\n", file)
		return nil
	}
	return c
}

// newScenario returns the text of a valid scenario.
func newScenario(name string, b backends.Backend, l backends.Lock) ([]byte, error) {
	var text bytes.Buffer
	err := newTemplate.Execute(&text, map[string]any{
		"Schema": scenarios.SchemaAddress, "Name": name, "Backend": b.Name,
		"Lock": l.Name, "TTL": max(newTTL, l.MinTTL), "Pause": max(newTTL, l.MinTTL) / 2, "Faults": !b.InProcess,
	})
	if err != nil {
		return nil, err
	}
	_, err = scenarios.Parse(text.Bytes(), name+".yaml")
	return text.Bytes(), err
}

// writeNew writes a file, and fails if it exists.
func writeNew(file string, text []byte) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usagef("new: %s exists; give another name, or remove it", file)
	}
	if err != nil {
		return cli.Usagef("new: %v", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
