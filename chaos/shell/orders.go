package shell

import (
	"fmt"
	"strings"
	"time"
)

// DoExec is the order that runs ExecArgs.Run in the namespaces of a process; its undo runs ExecArgs.Undo there. DoProve
// runs ExecArgs.Run and needs no undo. All are answered with Ran.
const (
	DoExec  = "exec"
	DoProve = "prove"
)

// ExecArgs is a command line for /bin/sh, and one that undoes it.
type ExecArgs struct {
	Run    string        `json:"run"`
	Undo   string        `json:"undo,omitempty"`
	Env    []string      `json:"env,omitempty"` // added to the environment of the process
	Dir    string        `json:"dir,omitempty"` // working directory of the commands
	Within time.Duration `json:"within"`        // each is killed after that
}

// Ran is the result of one command.
type Ran struct {
	Code   int           `json:"code"`
	Ended  string        `json:"ended,omitempty"` // why there is no exit code, such as "killed after 5s"
	Output string        `json:"output,omitempty"`
	More   int           `json:"more,omitempty"` // bytes of output beyond Output
	Took   time.Duration `json:"took"`
	Time   int64         `json:"time"`           // ns of CLOCK_MONOTONIC, when it had ended
	Gone   bool          `json:"gone,omitempty"` // the process has ended, and the command did not run
}

// OK reports whether the command succeeded.
func (r Ran) OK() bool { return r.Ended == "" && r.Code == 0 && !r.Gone }

// Same reports whether two results of one command are indistinguishable.
func (r Ran) Same(as Ran) bool {
	return r.Code == as.Code && r.Ended == as.Ended && r.Gone == as.Gone && r.Output == as.Output && r.More == as.More
}

// String formats the result as evidence.
func (r Ran) String() string {
	if r.Gone {
		return "did not run: the process has ended"
	}
	text := fmt.Sprintf("exit code %d", r.Code)
	if r.Ended != "" {
		text = r.Ended
	}
	if said := strings.Join(strings.Fields(r.Output), " "); said != "" {
		text += fmt.Sprintf(", said %q", said)
	}
	if r.More > 0 {
		text += fmt.Sprintf(" and %d bytes more", r.More)
	}
	return text
}
