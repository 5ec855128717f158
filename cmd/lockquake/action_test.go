package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/suite"
)

// action is the GitHub action at the root of the repository.
type action struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	Inputs      map[string]struct {
		Description string `yaml:"description"`
		Required    bool   `yaml:"required"`
		Default     string `yaml:"default"`
	} `yaml:"inputs"`
	Outputs map[string]struct {
		Description string `yaml:"description"`
		Value       string `yaml:"value"`
	} `yaml:"outputs"`
	Runs struct {
		Using string       `yaml:"using"`
		Steps []actionStep `yaml:"steps"`
	} `yaml:"runs"`
}

type actionStep struct {
	ID    string            `yaml:"id"`
	If    string            `yaml:"if"`
	Uses  string            `yaml:"uses"`
	With  map[string]string `yaml:"with"`
	Shell string            `yaml:"shell"`
	Dir   string            `yaml:"working-directory"`
	Env   map[string]string `yaml:"env"`
	Run   string            `yaml:"run"`
}

func readAction(t *testing.T) (a action) {
	t.Helper()
	text, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, &a, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return a
}

// expression matches what GitHub replaces by a value.
var expression = regexp.MustCompile(`\$\{\{ ([a-z_.-]+) \}\}`)

// TestActionIsWhole: every flag that the action passes exists, and every input is used and documented. No value is
// part of a script, where it could act as a command.
func TestActionIsWhole(t *testing.T) {
	t.Parallel()
	a := readAction(t)
	used := map[string]bool{}
	known := map[string]*cobra.Command{"suite": suiteCommand(cli.Streams{}), "hunt": huntCommand(cli.Streams{}), "images": imagesCommand(cli.Streams{})}
	for _, s := range a.Runs.Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %s: a value is part of the script: %s", s.ID, s.Run)
		}
		if (s.Run != "") != (s.Shell == "bash") {
			t.Errorf("step %s: its shell is %q", s.ID, s.Shell)
		}
		for _, text := range append(append(slices.Collect(maps.Values(s.Env)), slices.Collect(maps.Values(s.With))...), s.If, s.Dir) {
			for _, m := range expression.FindAllStringSubmatch(text, -1) {
				name, input := strings.CutPrefix(m[1], "inputs.")
				if _, ok := a.Inputs[name]; input && !ok {
					t.Errorf("step %s: there is no input %s", s.ID, name)
				}
				used[name] = used[name] || input
			}
		}
		for _, m := range regexp.MustCompile(`--([a-z-]+)=`).FindAllStringSubmatch(s.Run, -1) {
			if known[s.ID] == nil || known[s.ID].Flags().Lookup(m[1]) == nil {
				t.Errorf("step %s: lockquake %s has no flag --%s", s.ID, s.ID, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`lockquake" ([a-z]+)|\$LOCKQUAKE" ([a-z]+)`).FindAllStringSubmatch(s.Run, -1) {
			if known[m[1]+m[2]] == nil {
				t.Errorf("step %s: there is no verb %s", s.ID, m[1]+m[2])
			}
		}
	}
	page, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range a.Inputs {
		if !used[name] || in.Description == "" || !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("input %s: used: %t, described as %q; docs/ci.md has a line for each", name, used[name], in.Description)
		}
	}
}

// TestActionRuns executes the steps of the action in order, as GitHub does, on the memory backend: with a correct
// lock, a wrong one, an unknown one, and with values that a shell would interpret.
func TestActionRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inputs  map[string]string
		code    int    // of the job
		exit    string // output exit-code
		summary string
	}{
		"green":      {map[string]string{"suite": "memory", "stories": "contention late-rel*e"}, 0, "0", "| contention | ✅ green |\n| late-release | ✅ green |\n"},
		"red":        {map[string]string{"suite": "memory\nmemory/never-excludes\n"}, 1, "1", "| contention | ✅ green | ❌ red |\n"},
		"unknown":    {map[string]string{"suite": "memory", "budget": "1ms"}, 4, "4", "⏳"},
		"warned":     {map[string]string{"suite": "memory", "budget": "1ms", "unknown": "warn"}, 0, "4", "⏳"},
		"usage":      {map[string]string{"suite": "memory/nothing"}, 2, "2", ""},
		"hostile":    {map[string]string{"suite": "$(touch>owned) ;touch${IFS}owned --out=owned *", "client": "`touch owned`"}, 2, "2", ""},
		"a flag":     {map[string]string{"suite": "memory --dry-run"}, 2, "2", ""},
		"a file":     {map[string]string{"suite": "suite.yaml", "stories": "", "working-directory": "below"}, 0, "0", "| overdue | ✅ green |\n"},
		"a hunt":     {map[string]string{"hunt": "memory/never-excludes", "hunt-budget": "20s"}, 1, "", "memory/never-excludes: found double grants"},
		"no lock":    {map[string]string{"hunt": "memory/nothing"}, 2, "", ""},
		"its budget": {map[string]string{"suite": "brief.yaml", "working-directory": "below"}, 4, "4", "⏳"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, readAction(t), c.inputs)
			code := j.run(t)
			summary, _ := os.ReadFile(filepath.Join(j.dir, "summary"))
			if strings.Contains(string(summary), "❔") { // the machine disturbed a run, so it is no pass
				t.Logf("unknown: %s", summary)
				c.summary = "❔"
				if c.code == 0 {
					c.code, c.exit = 4, "4"
				}
			}
			if code != c.code || j.values["steps.suite.outputs.exit-code"] != c.exit {
				t.Errorf("the job ended with %d, want %d; the suite with %q, want %s\n%s", code, c.code, j.values["steps.suite.outputs.exit-code"], c.exit, &j.said)
			}
			if !strings.Contains(string(summary), c.summary) || (c.summary == "") != (len(summary) == 0) {
				t.Errorf("the summary of the job is %q, want %q in it", summary, c.summary)
			}
			if _, err := os.Stat(filepath.Join(j.dir, "owned")); err == nil {
				t.Errorf("a value was obeyed\n%s", &j.said)
			}
			if at := j.values["steps.suite.outputs.directory"]; c.summary != "" && c.inputs["suite"] != "" {
				for _, file := range []string{suite.File, suite.FileJUnit} {
					if _, err := os.Stat(filepath.Join(at, file)); err != nil {
						t.Error(err)
					}
				}
			}
			if said := j.said.String(); strings.Contains(said, "::warning") != (c.inputs["unknown"] == "warn") {
				t.Errorf("a warning, or none: %s", said)
			}
		})
	}
}

// job is the state that GitHub keeps of a job.
type job struct {
	action action
	dir    string
	values map[string]string // by name of the expression
	said   strings.Builder
}

// newJob makes a job with these inputs. The program is already in the action's directory.
func newJob(t *testing.T, a action, inputs map[string]string) *job {
	t.Helper()
	j := &job{action: a, dir: t.TempDir(), values: map[string]string{}}
	program, err := exec.LookPath("lockquake")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"bin/make":         "#!/bin/sh\n[ \"$1 $3\" = '-C build' ] || exit 9\n",
		"below/brief.yaml": "locks: [{backend: memory}]\nstories: [overdue]\nbudget: 1ms\n",
		"below/suite.yaml": "locks: [{backend: memory}]\nstories: [overdue]\n",
	} {
		path := filepath.Join(j.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(j.dir, "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(j.dir, "build/lockquake")); err != nil {
		t.Fatal(err)
	}
	j.values["github.action_path"], j.values["github.action_ref"] = j.dir, "v1"
	for name, in := range a.Inputs {
		j.values["inputs."+name] = in.Default
	}
	for name, value := range map[string]string{"provider": "local", "quick": "true", "ttl": "1s", "stories": "contention"} {
		j.values["inputs."+name] = value
	}
	for name, value := range inputs {
		if _, ok := a.Inputs[name]; !ok {
			t.Fatalf("there is no input %s", name)
		}
		j.values["inputs."+name] = value
	}
	return j
}

// run executes the steps that have a script, until one returns a code other than 0.
func (j *job) run(t *testing.T) int {
	t.Helper()
	for _, s := range j.action.Runs.Steps {
		if s.Run == "" {
			continue
		}
		script, output := filepath.Join(j.dir, "script"), filepath.Join(j.dir, "output")
		if err := os.WriteFile(script, []byte(s.Run), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
		cmd.Dir = filepath.Join(j.dir, j.value(s.Dir))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(j.dir, "bin")+":"+os.Getenv("PATH"),
			"GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+filepath.Join(j.dir, "summary"), "RUNNER_TEMP="+j.dir)
		for name, text := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+j.value(text))
		}
		cmd.Stdout, cmd.Stderr = &j.said, &j.said
		err := cmd.Run()
		text, _ := os.ReadFile(output)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			j.values["steps."+s.ID+".outputs."+name] = value
		}
		if err != nil {
			return cmd.ProcessState.ExitCode()
		}
	}
	return 0
}

// value expands the expressions in a text.
func (j *job) value(text string) string {
	return expression.ReplaceAllStringFunc(text, func(e string) string { return j.values[expression.FindStringSubmatch(e)[1]] })
}
