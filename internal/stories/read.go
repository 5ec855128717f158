package stories

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/internal/caret"
)

// line is a line of a scenario, as written in its story.
type line struct {
	text string
	when string // traits and names of stories, joined by " and ", each optionally after "not "; "": always
	into string // the section that it is a part of; "": none
}

// A story is YAML in the form of a scenario, whose keys and entries have a line each:
//
//   - a line that is a comment is about the story. One behind a step is part of the scenario;
//   - an entry such as `- {when: processes, heal: pause}` is only for locks that have the trait, or lack it, or for
//     one of the stories that share these lines;
//   - `workload`, `run` and `expect` may be lists of such entries, which make one map;
//   - a text in parentheses is a value, such as (long), (0.5ttl+1s) or (clients);
//   - POINT in a name, a claim or a line is the point that the story is about;
//   - `each` is a list of names of locks, quoted, such as `- ["a", "b"]`. The steps that have FIRST or SECOND are
//     repeated for each entry, with its names in their place.
//
// Beside the keys of a scenario it has those of header.
var (
	header = []string{
		"name", "claim", "note", "turn", "quick", "needs", "ttl", "takes", "grants", "durable", "per",
		"like", "permits",
	}
	sections = []string{"each", "workload", "chaos", "steps", "run", "expect", "properties"}
	joined   = []string{"each", "workload", "run", "expect"}
	whenForm = regexp.MustCompile(`^  - \{when: ([^,{}]+), `)
	partForm = regexp.MustCompile(`^  - \{(.*)\}$`)
	eachForm = regexp.MustCompile(`^  - \[("(?:[^"\\]|\\.)*")(?:, ("(?:[^"\\]|\\.)*"))?\]$`)
)

// reader reads one file.
type reader struct {
	story Story
	names map[string]bool // of all files
	file  string
	n     int    // number of the current line, from 1
	text  string // the current line
	into  string // the section of the lines that follow
	each  []*strings.Replacer
}

func nameOf(file string) string { return strings.TrimSuffix(path.Base(file), ".yaml") }

// read reads a story. A mistake in it becomes its error, with line and caret.
func read(file, text string, names map[string]bool) Story {
	r := reader{file: file, names: names, story: Story{Text: text, Family: nameOf(file)}}
	for l := range strings.Lines(text) {
		r.n, r.text = r.n+1, strings.TrimRight(l, "\r\n")
		if err := r.line(); err != nil {
			return Story{Text: text, Family: r.story.Family, err: err}
		}
	}
	r.repeat()
	t := r.story
	switch {
	case t.Claim == "":
		t.err = fmt.Errorf("%s: claim: is missing", file)
	case t.turn == 0:
		t.err = fmt.Errorf("%s: turn: is missing: a number; stories with lower numbers come earlier", file)
	case strings.Contains(t.Family, "POINT") != (t.per != ""):
		t.err = fmt.Errorf("%s: per: a story about points needs POINT in its name, and per", file)
	case len(t.lines) == 0 == (t.like == ""):
		t.err = fmt.Errorf("%s: steps: write steps, or name their story in like", file)
	}
	return t
}

func (r *reader) line() error {
	switch bare := strings.TrimSpace(r.text); {
	case bare == "" || bare[0] == '#':
		return nil
	case strings.HasPrefix(r.text, " "):
		return r.entry()
	}
	key, value, _ := strings.Cut(r.text, ":")
	value = strings.TrimSpace(value)
	switch {
	case slices.Contains(header, key):
		return r.head(key, value)
	case !slices.Contains(sections, key):
		return r.errorf(key, "unknown key %q; valid: %s", key, strings.Join(append(header, sections...), ", "))
	}
	if r.into = ""; value == "" && slices.Contains(joined, key) {
		r.into = key
		return nil
	}
	return r.add(line{text: r.text})
}

// repeat repeats the steps for each entry of each.
func (r *reader) repeat() {
	lines := r.story.lines
	named := func(l line) bool { return strings.Contains(l.text, "FIRST") || strings.Contains(l.text, "SECOND") }
	from := max(0, slices.IndexFunc(lines, named))
	to := from
	for to < len(lines) && named(lines[to]) {
		to++
	}
	var out []line
	for _, names := range r.each {
		for _, l := range lines[from:to] {
			l.text = names.Replace(l.text)
			out = append(out, l)
		}
	}
	r.story.lines = slices.Replace(lines, from, to, out...)
}

// entry reads a line below a section.
func (r *reader) entry() error {
	if r.into == "each" {
		m := eachForm.FindStringSubmatch(r.text)
		if m == nil {
			return r.errorf(strings.TrimSpace(r.text), `want one or two quoted names, such as - ["a", "b"]`)
		}
		r.each = append(r.each, strings.NewReplacer("FIRST", m[1], "SECOND", m[2]))
		return nil
	}
	l := line{text: r.text, into: r.into}
	if m := whenForm.FindStringSubmatch(l.text); m != nil {
		l.when, l.text = m[1], "  - {"+l.text[len(m[0]):]
		for part := range strings.SplitSeq(l.when, " and ") {
			if word := strings.TrimPrefix(part, "not "); !r.knows(word) {
				return r.errorf(word, "%q is neither a trait nor a story; traits: %s", word, words())
			}
		}
	}
	if l.into != "" {
		m := partForm.FindStringSubmatch(l.text)
		if m == nil {
			return r.errorf(strings.TrimSpace(r.text), "each part of %s must be an entry such as - {key: value}", l.into)
		}
		l.text = m[1]
	}
	return r.add(l)
}

func (r *reader) knows(word string) bool {
	_, ok := traitOf(word)
	return ok || r.names[word]
}

func (r *reader) add(l line) error {
	if err := r.values(l.text); err != nil {
		return err
	}
	r.story.lines = append(r.story.lines, l)
	return nil
}

// values checks that all values in a text are known.
func (r *reader) values(text string) error {
	for _, m := range valueForm.FindAllStringSubmatch(text, -1) {
		if _, err := (Subject{}).value(m[2]); err != nil {
			return r.errorf("("+m[2]+")", "%v", err)
		}
	}
	return nil
}

// head reads a key that scenarios do not have.
func (r *reader) head(key, value string) (err error) {
	t := &r.story
	switch key {
	case "name":
		if value != r.story.Family {
			return r.errorf(value, "%q is not the name of the file", value)
		}
	case "claim":
		t.Claim = value
	case "note":
		t.Note = value
	case "turn":
		t.turn, err = strconv.Atoi(value)
	case "quick":
		t.Quick, err = strconv.ParseBool(value)
	case "grants":
		t.Grants, err = strconv.ParseInt(value, 10, 64)
	case "durable":
		t.durable, err = strconv.ParseBool(value)
	case "permits":
		t.permits, err = strconv.Atoi(value)
	case "takes":
		t.takes = value
		_, err = Subject{}.time(value)
	case "ttl":
		t.ttl = value
		_, err = Subject{}.time(value)
	case "needs":
		t.Needs = strings.Split(strings.Trim(value, "[]"), ", ")
		for _, word := range t.Needs {
			if _, ok := traitOf(word); !ok {
				return r.errorf(word, "needs: %q is not a trait; valid: %s", word, words())
			}
		}
	case "per":
		if t.per = value; !slices.Contains([]string{"acquire-points", "release-points"}, value) {
			return r.errorf(value, "per: %q is not known; valid: acquire-points, release-points", value)
		}
	case "like":
		if t.like = value; !r.names[value] {
			return r.errorf(value, "like: there is no story %q", value)
		}
	}
	if err != nil && value != "" {
		return r.errorf(value, "%s: %v", key, err)
	}
	if value == "" {
		return r.errorf(key, "%s: has no value", key)
	}
	return nil
}

// errorf returns an error about a text in the line.
func (r *reader) errorf(at, format string, args ...any) error {
	column := len([]rune(r.text[:max(0, strings.Index(r.text, at))])) + 1
	return fmt.Errorf("%s", caret.Text(r.file, r.n, column, fmt.Sprintf(format, args...), r.text))
}
