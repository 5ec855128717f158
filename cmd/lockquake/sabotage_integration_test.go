//go:build integration

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/results"
)

// TestSabotage keeps each fault from acting, and demands that no receipt confirms it.
func TestSabotage(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces of the local provider need root")
	}
	real, agents, shown := program(t), deafPrograms(t), map[string]string{}
	for _, k := range faults.Kinds() {
		s := sabotages[k.Name]
		if s.none != "" || s.test != "" {
			continue
		}
		bin, before := agents(s), shown[s.deaf]
		shown[s.deaf] = k.Name
		t.Run(k.Name, func(t *testing.T) {
			if before != "" {
				leftToAll(t, "the same orders, of "+before)
			}
			t.Parallel()
			o := tryout.Options{
				Backend: "etcd", Entries: []tryout.Entry{{Fault: k.Name, On: "etcd-1", Keys: k.Trials()[0], At: 500 * time.Millisecond}}, For: 3 * time.Second,
			}
			if s.options != nil {
				o = *s.options
			}
			o.Name = "sabotaged-" + k.Name
			// Only for the nodes; the run itself uses the real program.
			p := beginProgram(t, "/usr/bin/env", "LOCKQUAKE_BIN="+bin, real, "run", scenarioFile(t, tryout.Scenario(o)), "--provider", "local", "--format", "json")
			sabotaged(t, k.Name, p)
		})
	}
}

// sabotaged checks a run in which one fault did not act.
func sabotaged(t *testing.T, fault string, p *process) {
	t.Helper()
	code := p.wait(t)
	if code == cli.CodeMissing {
		t.Skipf("it cannot be delivered here, sabotaged or not: %s", p.stderr.String())
	}
	if code != cli.CodeInconclusive {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	r := p.report(t)
	found := false
	for _, f := range r.Faults {
		if f.Name != fault {
			continue
		}
		found = true
		t.Logf("%s: %s (%s)", f.Name, f.Receipt.Status, f.Receipt.Evidence)
		if f.Receipt.Status != history.NotInstalled {
			t.Errorf("%s passes for %s: %s", f.Name, f.Receipt.Status, f.Receipt.Evidence)
		}
	}
	if r.Verdict != results.Unknown || !found || !strings.Contains(strings.Join(r.Reasons, "\n"), fault) {
		t.Errorf("verdict %s for these reasons: %q", r.Verdict, r.Reasons)
	}
	gone(t, p)
}
