package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestZZ(t *testing.T) {
	for _, pat := range strings.Fields(os.Getenv("DIRS")) {
		dirs, _ := filepath.Glob(pat)
		for _, d := range dirs {
			f, err := read(d)
			if err != nil {
				fmt.Println("ERR", d, err)
				continue
			}
			name := filepath.Base(filepath.Dir(d))
			if f.Verdict != "pass" {
				fmt.Println("VERDICT", name, f.Verdict, f.Reasons)
			}
			if len(f.Untold) > 0 || os.Getenv("ALL") != "" {
				fmt.Println("##", name, f.Untold)
				if os.Getenv("WORDS") != "" {
					fmt.Println(strings.Join(f.Words, "\n"))
				}
			}
		}
	}
}
