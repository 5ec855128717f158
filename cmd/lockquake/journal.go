package main

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/internal/campaign"
)

// journalIn is the journal in a directory that --resume names. what names what it is of, such as "a suite". older makes one of what a lockquake has
// left that wrote none; nil: there is no such thing.
func journalIn(dir, what string, older func() (*campaign.Journal, error)) (*campaign.Journal, error) {
	j, err := campaign.Open(dir)
	if errors.Is(err, fs.ErrNotExist) && older != nil {
		j, err = older()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usagef("--resume: %s is no directory of %s: it has no %s", dir, what, campaign.File)
	case err != nil:
		return nil, usagef("--resume: %v", err)
	}
	return j, nil
}

// goOn is the journal of what --resume goes on with, where it may: what names it, such as "suite".
func goOn(tell *progress, what string, j *campaign.Journal, now campaign.Header) (*campaign.Journal, error) {
	if err := j.Header.Refuse(what, now); err != nil {
		return nil, usagef("--resume: %v", err)
	}
	if j.Dropped {
		tell.say("--resume: the last line of %s was cut off; its run is made again", campaign.File)
	}
	return j, nil
}

// seedOf is the seed with which the command of a campaign ends.
func seedOf(h campaign.Header) (uint64, error) {
	_, text, _ := strings.Cut(h.Command, " --seed ")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, usagef("--resume: its command has no seed: %s", h.Command)
	}
	return seed, nil
}

// commandOf is the command line that makes something again: a verb, its arguments and the flags that were given, but for some.
func commandOf(flags *pflag.FlagSet, verb string, args []string, without ...string) string {
	words := []string{invocation, verb}
	for _, a := range args {
		words = append(words, quoted(a))
	}
	return strings.Join(append(words, flagWords(flags, without...)...), " ")
}

// flagWords are the flags that were given, as a shell takes them, but for some.
func flagWords(flags *pflag.FlagSet, without ...string) (words []string) {
	flags.Visit(func(fl *pflag.Flag) {
		if slices.Contains(without, fl.Name) {
			return
		}
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if fl.Value.Type() == "bool" { // which takes no word behind it
				words = append(words, "--"+fl.Name+"="+v)
				continue
			}
			words = append(words, "--"+fl.Name, quoted(v))
		}
	})
	return words
}
