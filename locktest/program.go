package locktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/stories/ask"
)

// program is the path of lockquake.
type program string

// errNoProgram says how to get the program.
var errNoProgram = errors.New("program lockquake not found: name it in LOCKQUAKE_BIN, or put it on PATH with `go install github.com/lockquake/lockquake/cmd/lockquake@latest`")

func findProgram() (program, error) {
	if named := os.Getenv("LOCKQUAKE_BIN"); named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("LOCKQUAKE_BIN: %w", err)
		}
		return program(named), nil
	}
	path, err := exec.LookPath("lockquake")
	if err != nil {
		return "", errNoProgram
	}
	return program(path), nil
}

// patience is how long lockquake may take to heal and to tear down after SIGTERM.
const patience = 30 * time.Second

// command runs lockquake with these arguments. When the context ends it gets SIGTERM, and heals and tears down.
func (p program) command(ctx context.Context, args ...string) (cmd *exec.Cmd, said *bytes.Buffer) {
	cmd = exec.CommandContext(ctx, string(p), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	said = &bytes.Buffer{}
	cmd.Stderr = said
	return cmd, said
}

// complaint is the prefix of lockquake's last message.
const complaint = "lockquake: "

// failed returns lockquake's own message as the reason why it ended.
func failed(err error, said *bytes.Buffer) error {
	text := strings.TrimSpace(said.String())
	if i := strings.LastIndex(text, complaint); i >= 0 {
		text = text[i+len(complaint):]
	}
	return fmt.Errorf("%s%s (%w)", complaint, text, err)
}

// up starts a service for clients of this process, and returns once it serves. end removes it.
func (p program) up(ctx context.Context, args []string) (a backends.Access, end func() error, err error) {
	cmd, said := p.command(ctx, append([]string{"up", "--format", "json", "--until-eof"}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return a, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, nil, err
	}
	if err := cmd.Start(); err != nil {
		return a, nil, err
	}
	end = func() error {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			return failed(err, said)
		}
		return nil
	}
	if err := json.NewDecoder(out).Decode(&a); err != nil {
		return a, nil, errors.Join(end(), unlessEOF(err))
	}
	return a, end, nil
}

func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil // the program's own message says why
	}
	return err
}

// verdict holds the fields of verdict.json that locktest reads.
type verdict struct {
	Scenario     string   `json:"scenario"`
	Verdict      string   `json:"verdict"`
	Reasons      []string `json:"reasons"`
	Expectations []struct {
		Name    string   `json:"name"`
		Want    string   `json:"want"`
		Got     *float64 `json:"got"`
		Verdict string   `json:"verdict"`
	} `json:"expectations"`
	Findings []struct {
		Witnesses []struct {
			Kind string `json:"kind"`
			Text string `json:"text"`
		} `json:"witnesses"`
	} `json:"findings"`
	Judged struct {
		Grants int64 `json:"grants"`
	} `json:"judged"`
	Replay string `json:"replay"`
	RunDir string `json:"run_dir"`
}

// The verdicts of a run.
const (
	pass    = "pass"
	fail    = "fail"
	unknown = "unknown"
)

// text says why the run failed and lists the evidence, one item a line.
func (v verdict) text() string {
	var out []string
	unmet := map[string]int{} // number of witnesses shown, by expectation
	for _, e := range v.Expectations {
		if e.Verdict == fail {
			out = append(out, fmt.Sprintf("%s: want %s, found %s", e.Name, e.Want, figure(e.Got)))
			unmet[e.Name] = 0
		}
	}
	if len(out) == 0 {
		out = v.Reasons
	}
	for _, f := range v.Findings {
		for _, w := range f.Witnesses {
			count := w.Kind + "s"
			if n, of := unmet[count]; of && n < maxWitnesses {
				out = append(out, "  "+strings.ReplaceAll(w.Kind, "_", " ")+": "+w.Text)
				unmet[count]++
			}
		}
	}
	return strings.Join(out, "\n")
}

// maxWitnesses is how many witnesses of each kind are shown; the report has all.
const maxWitnesses = 2

func figure(x *float64) string {
	if x == nil {
		return "nothing to judge"
	}
	return strconv.FormatFloat(*x, 'f', -1, 64)
}

// Reasons why a job has no run, or not all of them.
var (
	errMissing = errors.New("not run here") // something is missing on this machine
	errSpent   = errors.New("not run")      // the budget has no time for it
)

// jobs is a lockquake process that runs jobs on request, on servers that it keeps between runs.
type jobs struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
	in   io.WriteCloser
	out  *json.Decoder
}

// jobs starts the process. The arguments apply to all runs.
func (p program) jobs(ctx context.Context, args []string) (j *jobs, err error) {
	j = &jobs{}
	j.cmd, j.said = p.command(ctx, append([]string{"run", "-", "--format", "json"}, args...)...)
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.out = json.NewDecoder(out)
	return j, j.cmd.Start()
}

// end ends the process and its servers. The result of each run was returned with its job.
func (j *jobs) end() error {
	err := j.ended()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() <= 4 {
		return nil
	}
	return err
}

// ended closes the process's input and returns how it ended.
func (j *jobs) ended() error {
	_ = j.in.Close()
	if err := j.cmd.Wait(); err != nil {
		return failed(err, j.said)
	}
	return nil
}

// do runs a scenario, or all that match a pattern, and returns the verdicts. The error wraps errMissing if this
// machine cannot run them, and errSpent if the budget is spent.
func (j *jobs) do(scenario string, set []string) (list []verdict, err error) {
	if err := json.NewEncoder(j.in).Encode(map[string]any{"scenario": scenario, "set": set}); err != nil {
		return nil, errors.Join(err, j.ended())
	}
	for {
		var answer struct {
			verdict
			Runs  *int   `json:"runs"` // only in the last answer of a job
			Code  int    `json:"code"` // an exit code of lockquake
			Error string `json:"error"`
		}
		if err := j.out.Decode(&answer); err != nil {
			return list, errors.Join(errors.New("lockquake ended before it had answered"), unlessEOF(err), j.ended())
		}
		switch {
		case answer.Runs == nil && answer.RunDir != "":
			list = append(list, answer.verdict)
		case answer.Runs == nil, answer.Error == "" &&
			*answer.Runs > 0: // a report of a run not made, which the job's last answer explains; or all runs were made
		case answer.Code == 3:
			return nil, fmt.Errorf("%w: %s%s", errMissing, complaint, answer.Error)
		case answer.Code == 4:
			return list, fmt.Errorf("%w: %s", errSpent, answer.Error)
		default:
			return list, errors.New(complaint + answer.Error)
		}
		if answer.Runs != nil {
			return list, nil
		}
	}
}

// stories lists the stories that apply to the lock.
func (p program) stories(ctx context.Context, l ask.Lock) (list []ask.Story, err error) {
	described, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	cmd, said := p.command(ctx, "list", "scenarios", "--suite", "--of", "-", "--format", "json")
	cmd.Stdin = bytes.NewReader(described)
	out, err := cmd.Output()
	if err != nil {
		return nil, failed(err, said)
	}
	return list, json.Unmarshal(out, &list)
}

// explain returns in plain words what happened in a run, and the path of its report last.
func (p program) explain(ctx context.Context, dir string) string {
	cmd, said := p.command(ctx, "report", dir, "--explain")
	out, err := cmd.Output()
	if err != nil {
		return failed(err, said).Error()
	}
	return strings.TrimSpace(string(out))
}
