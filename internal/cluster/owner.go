package cluster

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

// owner says whose something is: the run, and the supervisor beyond the reuse of its pid. Everything that a run makes
// carries it, so that leftovers are told from the things of a run that is still going on.
type owner struct {
	Run   string // id of the run
	PID   int    // of the supervisor
	Start uint64 // clock ticks from boot to the supervisor's start
	Boot  string // the kernel's boot id
	PIDNS string // name of the supervisor's pid namespace
	Host  string // host name
	Keep  bool   // left behind on purpose
}

// label is the prefix of all labels.
const label = "org.lockquake."

func self(run string, keep bool) owner {
	o := owner{Run: run, PID: os.Getpid(), Boot: clock.BootID(), Keep: keep}
	if p, err := proc.Find(o.PID); err == nil {
		o.Start = p.Start
	}
	o.PIDNS, _ = os.Readlink("/proc/self/ns/pid")
	o.Host, _ = os.Hostname()
	return o
}

// labels returns the owner as labels of a container or network.
func (o owner) labels() map[string]string {
	out := map[string]string{
		label + "run": o.Run, label + "supervisor-pid": strconv.Itoa(o.PID),
		label + "supervisor-start": strconv.FormatUint(o.Start, 10),
		label + "boot":             o.Boot, label + "pid-namespace": o.PIDNS, label + "host": o.Host,
	}
	if o.Keep {
		out[label+"keep"] = "true"
	}
	return out
}

// ownerOf reads labels back. What is missing or broken stays empty, and makes the owner's state unknown.
func ownerOf(labels map[string]string) owner {
	o := owner{
		Run: labels[label+"run"], Boot: labels[label+"boot"], PIDNS: labels[label+"pid-namespace"],
		Host: labels[label+"host"], Keep: labels[label+"keep"] != "",
	}
	o.PID, _ = strconv.Atoi(labels[label+"supervisor-pid"])
	o.Start, _ = strconv.ParseUint(labels[label+"supervisor-start"], 10, 64)
	return o
}

// tag returns the owner as one word, for an environment or the alias of a network link.
func (o owner) tag() string {
	host := strings.Map(func(r rune) rune {
		if r <= ' ' || r == ',' {
			return '_'
		}
		return r
	}, o.Host)
	return fmt.Sprintf("run=%s,pid=%d,start=%d,boot=%s,pidns=%s,host=%s,keep=%t", o.Run, o.PID, o.Start, o.Boot, o.PIDNS, host, o.Keep)
}

// ownerTag reads a tag back; ok is false where it is none.
func ownerTag(s string) (o owner, ok bool) {
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

// liveness is what is known of a supervisor.
type liveness int

const (
	unknown liveness = iota // it runs, or ran, where this process cannot look: another machine or pid namespace
	alive
	dead
)

// liveness tells whether the supervisor still runs.
func (o owner) liveness() liveness {
	here := self("", false)
	switch {
	case o.PID <= 0:
		return unknown
	case o.Boot == "" && here.Boot == "" && o.Host == here.Host:
		return bySignal(o.PID) // no /proc here: a pid that was reused counts as alive
	case o.Start == 0 || o.Boot == "":
		return unknown
	case o.Boot != here.Boot:
		if o.Host == here.Host && o.Host != "" {
			return dead // this machine was booted since
		}
		return unknown
	case o.PIDNS != here.PIDNS:
		return unknown
	case (proc.Process{PID: o.PID, Start: o.Start}).Alive():
		return alive
	}
	return dead
}

// bySignal asks the kernel whether there is a process with the pid.
func bySignal(pid int) liveness {
	p, err := os.FindProcess(pid)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return dead
	}
	return alive
}

// leftover tells whether Sweep may remove what this owner made.
func (o owner) leftover(all bool) bool {
	switch o.liveness() {
	case alive:
		return false
	case dead:
		return all || !o.Keep
	}
	return all
}
