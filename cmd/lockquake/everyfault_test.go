//go:build integration

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/cmd/lockquake/doctor"
	"github.com/lockquake/lockquake/internal/cli"
)

// examine runs doctor, with its caches in dir, and returns its diagnosis.
func examine(t *testing.T, dir string, args ...string) (doctor.Diagnosis, *process) {
	t.Helper()
	p := beginProgram(t, "env", append([]string{"XDG_CACHE_HOME=" + dir, program(t), "doctor", "--format", "json"}, args...)...)
	if code := p.wait(t); code != cli.CodeMet {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	var d doctor.Diagnosis
	if err := json.Unmarshal([]byte(p.stdout.String()), &d); err != nil {
		t.Fatalf("%v\n%s", err, p.stdout.String())
	}
	return d, p
}

// TestEveryFault has doctor try every fault in every way, on a server, a client, the resource or links, with each
// provider. Every fault must be seen to act and to be healed. Only faults that this kernel lacks parts for may be
// refused. LOCKQUAKE_TEST_PROVIDER selects one provider.
func TestEveryFault(t *testing.T) {
	t.Parallel()
	providers := []string{"docker", "local"}
	if one := os.Getenv("LOCKQUAKE_TEST_PROVIDER"); one != "" {
		providers = []string{one}
	}
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			caches := t.TempDir()
			d, p := examine(t, caches, "--provider", provider)
			lacks := lacking(d)
			tried := 0
			for _, c := range d.Faults {
				t.Run(c.Fault+" on "+c.Node, func(t *testing.T) { tried += showsItself(t, c, lacks) })
			}
			if want := len(faults.Kinds()) + 8; tried < want { // some have several ways or nodes
				t.Errorf("%d ways were tried, want %d", tried, want)
			}
			gone(t, p)
			remembered(t, d, caches, provider)
		})
	}
}

// lacking returns the faults for which the kernel lacks a part, by doctor's findings about the machine.
func lacking(d doctor.Diagnosis) map[string]string {
	out := map[string]string{}
	for _, m := range d.Machine {
		if m.Name == "sch_netem" && !m.Available {
			out["duplicate"] = "sch_netem"
		}
	}
	return out
}

// showsItself checks one cell, and returns the number of ways tried in it.
func showsItself(t *testing.T, c doctor.Cell, lacks map[string]string) (tried int) {
	for _, w := range c.Ways {
		if part, known := lacks[c.Fault]; known {
			if w.Answer != doctor.No || !strings.Contains(w.Reason, part) || !w.At.IsZero() {
				t.Errorf("{%s} without %s: %+v", w.Keys, part, w)
			}
			continue
		}
		tried++
		if w.Answer != doctor.Yes || w.Evidence == "" || w.Healed == "" || w.At.IsZero() || w.Cached {
			t.Errorf("{%s}: %s; acting: %s; healed: %s", w.Keys, w.Word(), w.Evidence, w.Healed)
			continue
		}
		t.Logf("{%s}: %s: %s", w.Keys, w.Word(), w.Evidence)
	}
	want := doctor.Never
	switch {
	case len(c.Ways) > 0 && lacks[c.Fault] != "":
		want = doctor.No
	case len(c.Ways) > 0:
		want = doctor.Yes
	}
	if c.Answer != want {
		t.Errorf("the answer is %s, want %s", c.Answer, want)
	}
	return tried
}

// remembered runs doctor again: nothing is tried a second time, and the results are the same.
func remembered(t *testing.T, first doctor.Diagnosis, caches, provider string) {
	begun := time.Now()
	again, p := examine(t, caches, "--provider", provider)
	if strings.Contains(p.stderr.String(), ": yes") {
		t.Errorf("it tries again:\n%s", p.stderr.String())
	}
	t.Logf("asked again, it took %v", time.Since(begun).Round(time.Millisecond))
	if len(again.Faults) != len(first.Faults) {
		t.Fatalf("%d cells, and %d before", len(again.Faults), len(first.Faults))
	}
	for i, c := range again.Faults {
		if c.Answer != first.Faults[i].Answer {
			t.Errorf("%s on %s: %s, and %s before", c.Fault, c.Node, c.Answer, first.Faults[i].Answer)
		}
		for _, w := range c.Ways {
			if w.Answer == doctor.Yes && w.Cached == w.At.IsZero() {
				t.Errorf("%s on %s {%s}: cached %t, tried at %v", c.Fault, c.Node, w.Keys, w.Cached, w.At)
			}
		}
	}
}

// TestDoctorIsInterrupted sends Ctrl-C while doctor tries faults: it heals them, and leaves nothing behind.
func TestDoctorIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := beginProgram(t, "env", "XDG_CACHE_HOME="+t.TempDir(), program(t), "doctor", "--provider", provider)
			p.says(t, "on a ")
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != cli.CodeInterrupted || p.stdout.String() != "" {
				t.Errorf("exit code %d\n%s%s", code, p.stdout.String(), p.stderr.String())
			}
			gone(t, p)
		})
	}
}
