package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Quoted returns a word quoted for a shell.
func Quoted(word string) string {
	if !strings.ContainsAny(word, " \t\n*?[]{}()<>|&;$\"'`\\!#~") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Invocation is what to write in a shell to start this program. Main finds it out.
var Invocation = "lockquake"

// StartedAs returns "lockquake" where a shell finds that, else how this program was started.
func StartedAs(word string) string {
	if _, err := exec.LookPath("lockquake"); err == nil {
		return "lockquake"
	}
	if filepath.Base(word) == word { // a shell found it, or somebody made the word up
		if _, err := exec.LookPath(word); err != nil {
			if self, err := os.Executable(); err == nil {
				word = self
			}
		}
	}
	return Quoted(word)
}

// CommandOf is the command line that makes something again: a verb, its arguments and the flags that were given, but
// for some.
func CommandOf(flags *pflag.FlagSet, verb string, args []string, without ...string) string {
	words := []string{Invocation, verb}
	for _, a := range args {
		words = append(words, Quoted(a))
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
			words = append(words, "--"+fl.Name, Quoted(v))
		}
	})
	return words
}
