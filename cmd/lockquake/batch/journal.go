package batch

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
)

// Opening describes the campaign of a verb, new or resumed.
type Opening struct {
	Verb string // name of the campaign in messages, such as "suite"
	What string // names it in messages, such as "suite"

	Out, Resume string // values of the flags
	// Command repeats the campaign. If Seeded, --seed is appended to it: Seed, or a drawn one if Seed is 0, or that of
	// the resumed campaign.
	Command string
	Seeded  bool
	Seed    uint64
	// Older reads the results of releases that wrote no journal. It is nil if every release wrote one.
	Older func(dir string) (results.Origin, []campaign.Result, error)
}

// Journal returns the directory, the journal and the seed. Nothing is written before the first result.
func (o Opening) Journal(tell *cli.Progress) (dir string, j *campaign.Journal, seed uint64, err error) {
	now := time.Now().UTC()
	origin := results.Origin{Version: cli.Version, Started: now.Format(time.RFC3339), Host: engine.Host()}
	dir, seed = o.Resume, o.Seed
	if o.Resume != "" {
		if j, err = o.open(); err != nil {
			return "", nil, 0, err
		}
		if o.Seeded && seed == 0 {
			if seed, err = seedOf(j.Header.Command); err != nil {
				return "", nil, 0, err
			}
		}
	}
	if o.Seeded && seed == 0 {
		seed = DrawSeed()
	}
	origin.Command = o.Command
	if o.Seeded {
		origin.Command += fmt.Sprintf(" --seed %d", seed)
	}
	if j == nil {
		dir = filepath.Join(o.Out, o.Verb+"-"+now.Format("20060102T150405.000"))
		return dir, campaign.New(dir, origin), seed, nil
	}
	if err := j.Header.Refuse(o.What, origin); err != nil {
		return "", nil, 0, cli.Usagef("--resume: %v", err)
	}
	if j.Dropped {
		tell.Say("--resume: the last line of %s was cut off; its run is repeated", campaign.File)
	}
	return dir, j, seed, nil
}

// open returns the journal in the directory that --resume names.
func (o Opening) open() (*campaign.Journal, error) {
	j, err := campaign.Open(o.Resume)
	if errors.Is(err, fs.ErrNotExist) && o.Older != nil {
		var origin results.Origin
		var done []campaign.Result
		if origin, done, err = o.Older(o.Resume); err == nil {
			j = campaign.New(o.Resume, origin, done...)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.Usagef("--resume: %s is not the directory of a %s: it has no %s", o.Resume, o.What, campaign.File)
	case err != nil:
		return nil, cli.Usagef("--resume: %v", err)
	}
	return j, nil
}

// seedOf returns the seed at the end of a command.
func seedOf(command string) (uint64, error) {
	_, text, _ := strings.Cut(command, " --seed ")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, cli.Usagef("--resume: its command has no seed: %s", command)
	}
	return seed, nil
}

// DrawSeed returns a random seed other than 0 that every JSON reader can represent.
func DrawSeed() uint64 {
	var b [8]byte
	// It cannot fail: the Go runtime ends the program if the system has no randomness.
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])>>22 + 1
}
