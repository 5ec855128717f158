package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// mutation damages a run directory and says how.
type mutation struct {
	name   string
	change func(r *rand.Rand, run runFiles) string
}

// mutations take turns. Most damage the history in ways that no checksum reveals.
var mutations = []mutation{
	{"a field", func(r *rand.Rand, run runFiles) string { return mutateRecords(r, run, changeField) }},
	{"bits", func(r *rand.Rand, run runFiles) string { return mutateFile(r, run, "", flipBits) }},
	{"records", func(r *rand.Rand, run runFiles) string { return mutateRecords(r, run, moveRecords) }},
	{"env.json", func(r *rand.Rand, run runFiles) string { return mutateJSON(r, run, results.FileEnv) }},
	{"fields", func(r *rand.Rand, run runFiles) string {
		return mutateRecords(r, run, changeField, changeField, changeField)
	}},
	{"a line", func(r *rand.Rand, run runFiles) string {
		return mutateJSON(r, run, pick(r, results.FileFaults, results.FileObserved))
	}},
	{"a user for all", func(r *rand.Rand, run runFiles) string { return mutateRecords(r, run, changeAll) }},
	{"an end", func(r *rand.Rand, run runFiles) string { return mutateFile(r, run, "", cut) }},
	{"a header", mutateHeader},
	{"new records", func(r *rand.Rand, run runFiles) string { return mutateRecords(r, run, inventRecords) }},
	{"scenario.yaml", func(r *rand.Rand, run runFiles) string { return mutateFile(r, run, results.FileScenario, changeText) }},
	{"files", mutateFiles},
	{"a field and a move", func(r *rand.Rand, run runFiles) string {
		return mutateRecords(r, run, changeField, moveRecords)
	}},
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// fileOf chooses a file of the run.
func fileOf(r *rand.Rand, run runFiles, like string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(run)) {
		if strings.Contains(name, like) && !strings.Contains(name, results.DirLatency) && !strings.Contains(name, results.DirLogs) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return pick(r, names...)
}

func mutateFile(r *rand.Rand, run runFiles, like string, how func(*rand.Rand, []byte) ([]byte, string)) string {
	name := fileOf(r, run, like)
	b, what := how(r, run[name])
	run[name] = b
	return name + ": " + what
}

func flipBits(r *rand.Rand, b []byte) ([]byte, string) {
	n := 1 + r.IntN(3)
	for range n {
		if len(b) > 0 {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	}
	return b, fmt.Sprintf("%d bits", n)
}

func cut(r *rand.Rand, b []byte) ([]byte, string) {
	n := r.IntN(len(b) + 1)
	if r.IntN(2) == 0 {
		n = max(0, len(b)-history.RecordSize*r.IntN(4))
	}
	return b[:n], fmt.Sprintf("%d bytes of %d are left", n, len(b))
}

func changeText(r *rand.Rand, b []byte) ([]byte, string) {
	lines := strings.SplitAfter(string(b), "\n")
	i := r.IntN(len(lines))
	switch r.IntN(6) {
	case 0:
		return []byte(strings.Join(slices.Delete(lines, i, i+1), "")), "a line less"
	case 1:
		return []byte(strings.Join(slices.Insert(lines, i, lines[i]), "")), "a line twice"
	case 2:
		return number.ReplaceAllFunc(b, func([]byte) []byte { return []byte(pick(r, numbers...)) }), "other numbers"
	case 3:
		return append(b, strings.Repeat(pick(r, "[", "{a: ", "- ", "? "), 1+r.IntN(100_000))...), "deep"
	case 4:
		return append(b, "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c]\n"...), "aliases"
	default:
		return bytes.Repeat(b, 1+r.IntN(300)), "again and again"
	}
}

// number matches a number in a text; numbers may replace it.
var (
	number  = regexp.MustCompile(`[0-9]+`)
	numbers = []string{
		"0", "1", "-1", "2147483648", "4294967295", "4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
		"1e308", "1e-9", "0.5", "99999999999999999999999", "65535", "65536",
	}
)

// mutateFiles removes, renames, empties and duplicates whole files.
func mutateFiles(r *rand.Rand, run runFiles) string {
	name := fileOf(r, run, "")
	switch r.IntN(5) {
	case 0:
		delete(run, name)
		return name + " is gone"
	case 1:
		run[name] = nil
		return name + " is empty"
	case 2:
		other := fileOf(r, run, "")
		run[name], run[other] = run[other], run[name]
		return name + " and " + other + " are swapped"
	case 3:
		name = fileOf(r, run, ".lqh")
		to := pick(r, "client-3", "client-99999999999", "client-65536", "register-2", "engine2", "")
		run["history/"+to+".lqh"] = run[name]
		return name + " is also " + to
	default:
		run[name+"/inside"] = nil
		delete(run, name)
		return name + " is a directory"
	}
}

// mutateHeader edits the first line of a history without changing its length.
func mutateHeader(r *rand.Rand, run runFiles) string {
	name := fileOf(r, run, ".lqh")
	line, rest, _ := bytes.Cut(run[name], []byte("\n"))
	var h map[string]any
	if json.Unmarshal(line, &h) != nil {
		return name + ": no header"
	}
	var what string
	switch r.IntN(5) {
	case 0:
		what = changeValue(r, h)
	case 1:
		h["offset_ns"], what = pick(r, 1, -5e6, 4e18, -4e18, 9e18), "offset"
	case 2:
		h["error_ns"], what = pick(r, 1, -5e6, 4e18, 1e6, 3e12), "error"
	case 3:
		h["locks"], what = make([]string, pick(r, 0, 1, 70_000)), "locks"
	default:
		h["process"], what = pick(r, "client-2", "client-1", "engine", "register", "client-99999999999", ""), "process"
	}
	line, _ = json.Marshal(h)
	line = append(line, bytes.Repeat([]byte{' '}, 63-len(line)%64)...)
	run[name] = append(append(line, '\n'), rest...)
	return name + ": " + what
}

// mutateJSON changes values of env.json, or of some lines of a file of lines.
func mutateJSON(r *rand.Rand, run runFiles, name string) string {
	if len(run[name]) == 0 {
		name = results.FileEnv
	}
	if r.IntN(8) == 0 {
		b, what := cut(r, run[name])
		run[name] = b
		return name + ": " + what
	}
	if name == results.FileEnv {
		var v map[string]any
		if json.Unmarshal(run[name], &v) != nil {
			return "no JSON"
		}
		what := changeValue(r, v)
		run[name], _ = json.Marshal(v)
		return name + ": " + what
	}
	lines := bytes.Split(bytes.TrimSpace(run[name]), []byte("\n"))
	i := r.IntN(len(lines))
	var v map[string]any
	if json.Unmarshal(lines[i], &v) != nil {
		return "no JSON"
	}
	what := changeValue(r, v)
	lines[i], _ = json.Marshal(v)
	if r.IntN(6) == 0 {
		lines, what = slices.Repeat(lines, 1+r.IntN(3000)), what+", many times"
	}
	run[name] = append(bytes.Join(lines, []byte("\n")), '\n')
	return fmt.Sprintf("%s: line %d: %s", name, i+1, what)
}

// changeValue changes, removes or multiplies one value at any depth.
func changeValue(r *rand.Rand, v map[string]any) string {
	keys := slices.Sorted(maps.Keys(v))
	if len(keys) == 0 {
		v["new"] = 1
		return "new"
	}
	key := pick(r, keys...)
	switch inner := v[key].(type) {
	case map[string]any:
		if r.IntN(4) > 0 {
			return key + "." + changeValue(r, inner)
		}
	case []any:
		if len(inner) > 0 && r.IntN(3) > 0 {
			if m, ok := inner[r.IntN(len(inner))].(map[string]any); ok {
				return key + "[]." + changeValue(r, m)
			}
		}
		if r.IntN(2) == 0 {
			v[key] = slices.Repeat(inner, 1000)
			return key + " a thousand times"
		}
	}
	if r.IntN(6) == 0 {
		delete(v, key)
		return key + " is gone"
	}
	v[key] = pick[any](r, 0, 1, -1, 1e18, 9.2e18, -9.2e18, math.MaxInt64, "", "client-1", "client-99999999999", strings.Repeat("x", 1<<16), nil, true, false,
		[]any{}, map[string]any{}, 1e300, "register", 65536, []any{"client-65536", "client-9"})
	return fmt.Sprintf("%s is %.40v", key, v[key])
}
