package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// The generated parts are between these lines.
const (
	beginMark = "<!-- %s: written by make story-pages -->"
	endMark   = "<!-- end of %s -->"
)

// put replaces the text between the marks of a part.
func put(page, part, text string) (string, error) {
	begin, end := fmt.Sprintf(beginMark, part), fmt.Sprintf(endMark, part)
	head, rest, ok := strings.Cut(page, begin+"\n")
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the page has no part between %q and %q", begin, end)
	}
	return head + begin + "\n" + text + end + tail, nil
}

// storiesText returns the generated part of docs/stories.md: the stories by question, each with the first sentence of
// its claim.
func storiesText(all []*story) string {
	var b strings.Builder
	for i, group := range sorted(all) {
		if len(group) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", families[i].Question)
		for _, s := range group {
			first, _, _ := strings.Cut(oneLine(s.Claim), ". ")
			fmt.Fprintf(&b, "- [`%s`](stories/%s.md): %s.\n", s.Name, s.Name, strings.TrimSuffix(first, "."))
		}
	}
	return b.String() + "\n"
}

// files returns the story's own files: its page and its picture.
func (s *story) files() map[string][]byte {
	out := map[string][]byte{s.Name + ".md": []byte(s.page())}
	if svg := s.Found[s.Name].Picture; svg != nil {
		out[s.Name+".svg"] = svg
	}
	return out
}

// page returns the story's page: its claim, what a run found, its picture and words, and its twins.
func (s *story) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- written by make story-pages -->\n# %s\n\n%s\n", s.Name, oneLine(s.Claim))
	if s.Source != "" {
		fmt.Fprintf(&b, "(%s.)\n", oneLine(s.Source))
	}
	f, ok := s.Found[s.Name]
	if !ok {
		b.WriteString("\nNo run is shown here yet.\n")
	} else {
		fmt.Fprintf(&b, "\n%s\n", f.sentence())
		if f.Picture != nil {
			fmt.Fprintf(&b, "\n![%s, as it happened](%s.svg)\n", s.Name, s.Name)
		}
		fmt.Fprintf(&b, "\n%s", f.block())
	}
	if len(s.Twins) > 0 {
		b.WriteString("\n| twin | the same, but | a run found | verdict |\n|---|---|---|---|\n")
		for _, t := range s.Twins {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", strings.TrimPrefix(t.Name, s.Name), cell(t.Claim),
				s.Found[t.Name].results(), s.Found[t.Name].verdict())
		}
	}
	for _, t := range s.Twins {
		if f, ok := s.Found[t.Name]; ok {
			fmt.Fprintf(&b, "\n<details><summary><code>%s</code> in words</summary>\n\n%s</details>\n", t.Name,
				f.block())
		}
	}
	fmt.Fprintf(&b, "\nWords and picture are made of the events of these runs, as `lockquake report --explain` does. [All stories](../stories.md)\n")
	return b.String()
}

// block returns the explanation as it is printed.
func (f found) block() string { return "```\n" + strings.Join(f.Words, "\n") + "\n```\n" }

// onReadme is the story whose picture is in the README.
const onReadme = "sentinel-lost-lock"

// readmeText returns the generated part of README.md: one story's claim, its picture, and what the run found. It is
// "" if there is no picture.
func readmeText(all []*story) string {
	i := slices.IndexFunc(all, func(s *story) bool { return s.Name == onReadme })
	if i < 0 || all[i].Found[onReadme].Picture == nil {
		return ""
	}
	return fmt.Sprintf("%s\n\n![%s, as it happened](docs/stories/%s.svg)\n\n%s\n", oneLine(all[i].Claim), onReadme,
		onReadme, all[i].Found[onReadme].sentence())
}

// sentence returns what a run found, and which run.
func (f found) sentence() string {
	var on []string
	for _, k := range slices.Sorted(maps.Keys(f.Versions)) {
		on = append(on, strings.TrimSuffix(k, ".version")+" "+f.Versions[k])
	}
	on = append(on, "provider "+f.Provider, "seed "+strconv.FormatUint(f.Seed, 10), "lockquake "+f.Made)
	thing := "grant"
	if strings.HasPrefix(f.Of, "access") { // it was stored as accesses
		thing = "access"
	}
	out := fmt.Sprintf("A run found, among %s: %s (%s).", figure.Of(f.Grants, thing), f.figures(),
		strings.Join(on, ", "))
	if f.Verdict != "pass" {
		out += fmt.Sprintf(" Its verdict is **%s**: %s.", f.Verdict, strings.Join(f.Reasons, "; "))
	}
	return out + " Again: `" + f.Replay + "`"
}

// figures lists the counts and measures of a run.
func (f found) figures() string {
	var out []string
	for _, name := range slices.Concat(shown, extra(f.Counts)) {
		if n, ok := f.Counts[name]; ok {
			out = append(out, fmt.Sprintf("%s **%s**", strings.ReplaceAll(name, "_", " "), figure.Count(n)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Measures)) {
		value := "not judged"
		if m := f.Measures[name]; m != nil {
			value = "**" + figure.Number(*m) + "**"
		}
		out = append(out, strings.ReplaceAll(name, "_", " ")+" "+value)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// extra lists the counts that are not usually shown.
func extra(counts map[string]int64) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(shown, name) {
			out = append(out, name)
		}
	}
	return out
}

// results returns the figures of a run as a table.
func (f found) results() string {
	if f.Verdict == "" {
		return "not shown yet"
	}
	return f.figures()
}

func (f found) verdict() string {
	if f.Verdict == "" {
		return "–"
	}
	return f.Verdict + ", " + f.Provider
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cell escapes a text for a table.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }
