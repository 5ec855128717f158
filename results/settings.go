package results

import (
	"fmt"
	"strconv"

	"github.com/lockquake/lockquake/results/figure"
)

// Setting is a server's setting or counter, before and after the load; "" if the server did not report it.
type Setting struct {
	Server string `json:"server"`
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Blames says what the growth of the counter means. The number comes before it in the sentence.
	Blames string `json:"blames,omitempty"`
}

// String returns the value, or both values if it changed.
func (s Setting) String() string {
	switch {
	case s.After == "" || s.After == s.Before:
		return s.Before
	case s.Before == "":
		return s.After
	}
	return s.Before + ", and after the load " + s.After
}

// blames says what happened to the servers' locks beyond the run's own actions, according to the servers' counters. A
// restarted server counts from 0.
func (e Env) blames() []string {
	var why []string
	for _, s := range e.Settings {
		before, err := strconv.ParseInt(s.Before, 10, 64)
		after, wrong := strconv.ParseInt(s.After, 10, 64)
		if s.Blames != "" && err == nil && wrong == nil && after > before {
			why = append(why, fmt.Sprintf("%s: during the run %s %s", s.Server, figure.Count(after-before), s.Blames))
		}
	}
	return why
}
