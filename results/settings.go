package results

import (
	"fmt"
	"strconv"

	"github.com/lockquake/lockquake/results/figure"
)

// Setting is a setting of a server's, or what it had counted, before and after the load; "" where it did not tell.
type Setting struct {
	Server string `json:"server"`
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Blames says what it means that the count has grown, as the sentence that the number begins.
	Blames string `json:"blames,omitempty"`
}

// String is the value, or both where it changed.
func (s Setting) String() string {
	switch {
	case s.After == "" || s.After == s.Before:
		return s.Before
	case s.Before == "":
		return s.After
	}
	return s.Before + ", and after the load " + s.After
}

// blames says what happened to the servers' locks beside what the run did to them, as the servers have counted it. A
// server that was started anew has counted from 0.
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
