package report

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
)

// clientLines names the judged programs: in one line if all clients were the same program.
func clientLines(r results.Report) []string {
	var out []string
	for _, c := range r.Clients {
		line := clientLine(c.Client, r.Program)
		if len(r.Clients) > 1 {
			line = strings.Join(c.Nodes, ", ") + ": " + line
		}
		out = append(out, line)
	}
	return out
}

const notOurs = ", not lockquake's own: it implements the requested lock in its own way"

func clientLine(c results.Client, program string) string {
	var libraries []string
	for _, module := range slices.Sorted(maps.Keys(c.Libraries)) {
		libraries = append(libraries, libraryName(module)+" "+strings.TrimPrefix(c.Libraries[module], "v"))
	}
	name := c.Process
	if name == "" {
		name = "a program without a name"
	}
	line := strings.TrimSpace(name + " " + c.Software)
	if len(libraries) > 0 {
		line += " (" + strings.Join(libraries, ", ") + ")"
	}
	if program != "" {
		line += ", run from " + program
	}
	if c.Foreign {
		line += notOurs
	}
	return line
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// libraryName shortens the path of a Go module; other names are unchanged.
func libraryName(module string) string {
	if base, last := path.Split(module); majorVersion.MatchString(last) {
		module = strings.TrimSuffix(base, "/")
	}
	host, rest, ok := strings.Cut(module, "/")
	if !ok || !strings.Contains(host, ".") {
		return module
	}
	if host == "github.com" {
		if _, name, ok := strings.Cut(rest, "/"); ok {
			return name
		}
	}
	return rest
}
