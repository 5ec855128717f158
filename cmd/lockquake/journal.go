package main

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

// opening is how the campaign of a verb begins, or goes on.
type opening struct {
	verb string // its directory is named after it
	what string // names it in messages, such as "suite"

	out, resume string // as the flags say
	// command makes it again. Where it takes a seed, that follows it: seed, or one that is drawn for 0, or that of the campaign that is gone on with.
	command string
	seeded  bool
	seed    uint64
	// older reads the results of releases that wrote no journal; nil if every release wrote one.
	older func(dir string) (results.Origin, []campaign.Result, error)
}

// journal returns the directory, the journal and the seed. Nothing is written before there is a result.
func (o opening) journal(tell *cli.Progress) (dir string, j *campaign.Journal, seed uint64, err error) {
	now := time.Now().UTC()
	origin := results.Origin{Version: cli.Version, Started: now.Format(time.RFC3339), Host: engine.Host()}
	dir, seed = o.resume, o.seed
	if o.resume != "" {
		if j, err = o.open(); err != nil {
			return "", nil, 0, err
		}
		if o.seeded && seed == 0 {
			if seed, err = seedOf(j.Header.Command); err != nil {
				return "", nil, 0, err
			}
		}
	}
	if o.seeded && seed == 0 {
		seed = drawSeed()
	}
	origin.Command = o.command
	if o.seeded {
		origin.Command += fmt.Sprintf(" --seed %d", seed)
	}
	if j == nil {
		dir = filepath.Join(o.out, o.verb+"-"+now.Format("20060102T150405.000"))
		return dir, campaign.New(dir, origin), seed, nil
	}
	if err := j.Header.Refuse(o.what, origin); err != nil {
		return "", nil, 0, cli.Usagef("--resume: %v", err)
	}
	if j.Dropped {
		tell.Say("--resume: the last line of %s was cut off; its run is made again", campaign.File)
	}
	return dir, j, seed, nil
}

// open returns the journal in the directory that --resume names.
func (o opening) open() (*campaign.Journal, error) {
	j, err := campaign.Open(o.resume)
	if errors.Is(err, fs.ErrNotExist) && o.older != nil {
		var origin results.Origin
		var done []campaign.Result
		if origin, done, err = o.older(o.resume); err == nil {
			j = campaign.New(o.resume, origin, done...)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.Usagef("--resume: %s is no directory of a %s: it has no %s", o.resume, o.what, campaign.File)
	case err != nil:
		return nil, cli.Usagef("--resume: %v", err)
	}
	return j, nil
}

// seedOf returns the seed with which a command ends.
func seedOf(command string) (uint64, error) {
	_, text, _ := strings.Cut(command, " --seed ")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, cli.Usagef("--resume: its command has no seed: %s", command)
	}
	return seed, nil
}

// drawSeed returns a seed other than 0, small enough for every reader of JSON.
func drawSeed() uint64 {
	var b [8]byte
	// It cannot fail: the Go runtime ends the program where the system has no randomness.
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])>>22 + 1
}
