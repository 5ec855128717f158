// Package owner marks what a run makes with the run and its supervisor, to distinguish leftovers from what belongs to a
// running one.
package owner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// Mark identifies an owner: the run, and its supervisor, even after its pid was reused.
type Mark struct {
	Run   string // id of the run
	PID   int    // of the supervisor
	Start uint64 // clock ticks from boot to the supervisor's start
	Boot  string // the kernel's boot id
	PIDNS string // name of the supervisor's pid namespace
	Host  string // host name
	Keep  bool   // left behind on purpose
}

// Label is the prefix of all labels.
const Label = "org.lockquake."

// Self returns the mark of this process for a run.
func Self(run string, keep bool) Mark {
	o := Mark{Run: run, PID: os.Getpid(), Boot: clock.BootID(), Keep: keep}
	if p, err := proc.Find(o.PID); err == nil {
		o.Start = p.Start
	}
	o.PIDNS, _ = os.Readlink("/proc/self/ns/pid")
	o.Host, _ = os.Hostname()
	return o
}

// Labels returns the owner as labels of a container or network.
func (o Mark) Labels() map[string]string {
	out := map[string]string{
		Label + "run": o.Run, Label + "supervisor-pid": strconv.Itoa(o.PID),
		Label + "supervisor-start": strconv.FormatUint(o.Start, 10),
		Label + "boot":             o.Boot, Label + "pid-namespace": o.PIDNS, Label + "host": o.Host,
	}
	if o.Keep {
		out[Label+"keep"] = "true"
	}
	return out
}

// Of parses labels. Missing or broken ones stay empty, and make the owner's state unknown.
func Of(labels map[string]string) Mark {
	o := Mark{
		Run: labels[Label+"run"], Boot: labels[Label+"boot"], PIDNS: labels[Label+"pid-namespace"],
		Host: labels[Label+"host"], Keep: labels[Label+"keep"] != "",
	}
	o.PID, _ = strconv.Atoi(labels[Label+"supervisor-pid"])
	o.Start, _ = strconv.ParseUint(labels[Label+"supervisor-start"], 10, 64)
	return o
}

// Tag returns the owner as one word, for an environment or the alias of a network link.
func (o Mark) Tag() string {
	host := strings.Map(func(r rune) rune {
		if r <= ' ' || r == ',' {
			return '_'
		}
		return r
	}, o.Host)
	return fmt.Sprintf("run=%s,pid=%d,start=%d,boot=%s,pidns=%s,host=%s,keep=%t", o.Run, o.PID, o.Start, o.Boot,
		o.PIDNS, host, o.Keep)
}

// Parse parses a tag; ok is false if it is invalid.
func Parse(s string) (o Mark, ok bool) {
	for part := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "run":
			o.Run = value
		case "pid":
			o.PID, _ = strconv.Atoi(value)
		case "start":
			o.Start, _ = strconv.ParseUint(value, 10, 64)
		case "boot":
			o.Boot = value
		case "pidns":
			o.PIDNS = value
		case "host":
			o.Host = value
		case "keep":
			o.Keep = value == "true"
		}
	}
	return o, o.Run != "" && o.PID > 0
}

// Liveness is the known state of a supervisor.
type Liveness int

// The known states of a supervisor. Unknown is one on another machine or in another pid namespace, which this process
// cannot inspect.
const (
	Unknown Liveness = iota
	Alive
	Dead
)

// Liveness returns whether the supervisor still runs, or is unknown.
func (o Mark) Liveness() Liveness {
	here := Self("", false)
	switch {
	case o.PID <= 0:
		return Unknown
	case o.Boot == "" && here.Boot == "" && o.Host == here.Host:
		return bySignal(o.PID) // no /proc here: a reused pid counts as alive
	case o.Start == 0 || o.Boot == "":
		return Unknown
	case o.Boot != here.Boot:
		if o.Host == here.Host && o.Host != "" {
			return Dead // this machine has been rebooted since
		}
		return Unknown
	case o.PIDNS != here.PIDNS:
		return Unknown
	case (proc.Process{PID: o.PID, Start: o.Start}).Alive():
		return Alive
	}
	return Dead
}

// bySignal asks the kernel whether there is a process with the pid.
func bySignal(pid int) Liveness {
	p, err := os.FindProcess(pid)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return Dead
	}
	return Alive
}

// Leftover reports whether Sweep may remove what this owner made.
func (o Mark) Leftover(all bool) bool {
	switch o.Liveness() {
	case Alive:
		return false
	case Dead:
		return all || !o.Keep
	}
	return all
}
