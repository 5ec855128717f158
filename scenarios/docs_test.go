package scenarios

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The docs name every key and word that the parser accepts, and their examples parse.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	words := append([]string{
		"nodes", "ttl", "clients", "users", "renew", "check", "margin", "timeout", "resource.guard", "at", "for", "every", "jitter", "held",
		"mean_gap", "random", "schedule", "overlap", "spare", "settle", "seed", "within", "lock", "value", "outcome", "async", "point", "action", "on", "as", "event", "fact", "node", "is", "is_not", "of", "set", "same",
	},
		rootKeys...)
	for _, list := range [][]string{guards, looks, stepKinds, outcomes, actions, overlaps, spares, hostRules} {
		words = append(words, list...)
	}
	for _, w := range words {
		if !strings.Contains(doc, "`"+w+"`") && !strings.Contains(doc, "**"+w+"**") {
			t.Errorf("docs/scenarios.md does not mention %q", w)
		}
	}
	for _, w := range verbs {
		if !strings.Contains(doc, w) {
			t.Errorf("docs/scenarios.md does not mention the verb %q", w)
		}
	}
	for _, w := range awaits {
		if !strings.Contains(doc, "`await: "+w+"`") {
			t.Errorf("docs/scenarios.md does not mention await %q", w)
		}
	}
	for _, d := range []string{DefaultTTL.String(), DefaultFor.String(), DefaultSettle.String(), `">=100"`} {
		if !strings.Contains(doc, d) {
			t.Errorf("docs/scenarios.md does not mention the default %s", d)
		}
	}

	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(doc, -1)
	if len(blocks) != 4 {
		t.Fatalf("%d examples, want 4", len(blocks))
	}
	whole, random, twin, steps := blocks[0][1], blocks[1][1], blocks[2][1], blocks[3][1]
	for _, text := range []string{whole, small + random, whole + twin, small + steps} {
		if _, err := Parse([]byte(text), "docs/scenarios.md"); err != nil {
			t.Error(err)
		}
	}
}

// TestChoosingIsAPage: the choice of a lock is explained on one page, and each of its sentences links its evidence.
func TestChoosingIsAPage(t *testing.T) {
	data, err := os.ReadFile("../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(data))); n > 850 {
		t.Errorf("docs/choosing.md has %d words, and is to be a page", n)
	}
	rests := regexp.MustCompile(`\]\(|[0-9]`)
	for paragraph := range strings.SplitSeq(string(data), "\n\n") {
		if strings.HasPrefix(paragraph, "#") || strings.HasPrefix(paragraph, "|") {
			continue
		}
		for sentence := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(paragraph, "\n", " ")), ". ") {
			if !rests.MatchString(sentence) {
				t.Errorf("docs/choosing.md: %q names no story and no figure", sentence)
			}
		}
	}
}

// TestArgumentsHaveTheirStories: the page of arguments names every story. Whatever it and the page about choosing
// link to is a story or a twin.
func TestArgumentsHaveTheirStories(t *testing.T) {
	all, err := catalog()
	if err != nil {
		t.Fatal(err)
	}
	fileOf := map[string]string{}
	for _, s := range all {
		fileOf[s.Name] = s.File
	}
	link := regexp.MustCompile("\\[`([a-z0-9-]+)`\\]\\(stories/([a-z0-9-]+)\\.md\\)")
	named := map[string]bool{}
	for _, page := range []string{"../docs/arguments.md", "../docs/choosing.md"} {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if n, all := len(link.FindAllString(string(data), -1)), strings.Count(string(data), "(stories/"); n != all {
			t.Errorf("%s: %d of %d links to stories are named by what they are about", page, n, all)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if fileOf[m[1]] == "" || fileOf[m[1]] != fileOf[m[2]] {
				t.Errorf("%s: %s is no story of %s", page, m[1], m[2])
			}
			named[m[2]] = named[m[2]] || strings.HasSuffix(page, "arguments.md")
		}
	}
	for _, s := range all {
		if strings.HasPrefix(s.File, "stories/") && fileOf[s.Name] == s.File && strings.TrimSuffix(s.File, ".yaml") == "stories/"+s.Name && !named[s.Name] {
			t.Errorf("docs/arguments.md does not say what %s shows", s.Name)
		}
	}
}
