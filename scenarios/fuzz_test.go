package scenarios

import (
	"os"
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	all, err := catalog()
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range all {
		f.Add(s.Text)
	}
	for _, file := range []string{"stories/etcd-holder-pause.yaml", "stories/redis-restart-amnesia.yaml"} {
		data, err := embedded.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	if data, err := os.ReadFile("testdata/mistakes.txt"); err == nil {
		for _, part := range strings.Split(string(data), "=== ")[1:] {
			_, text, _ := strings.Cut(part, "\n")
			f.Add([]byte(strings.ReplaceAll(text, "SMALL\n", small)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data, "fuzz.yaml")
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		sameAfterText(t, s)
		variants, err := twins(s)
		if err != nil {
			t.Fatalf("Parse took what twins refuses: %v", err)
		}
		for _, v := range variants {
			sameAfterText(t, v)
		}
		var own struct{ Hold time.Duration }
		_ = s.Workload.Params.Decode(&own)
	})
}
