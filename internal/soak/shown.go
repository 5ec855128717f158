package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// shown is the content of the page as data, kept beside the page. The record is not in git, so a row without runs in
// it keeps its earlier content.
type shown struct {
	On       []string                     `json:"on"`       // machines and versions
	Rows     map[string][]string          `json:"rows"`     // cells by the first of them
	Faults   map[string]map[string]string `json:"faults"`   // cells of the matrix by fault and head
	Failures []failure                    `json:"failures"` // runs that did not pass
	Demands  string                       `json:"demands"`  // the demands on the family, with their answers
	Missing  map[string]int               `json:"missing"`  // number of rows by the reason
}

// failure is a run of a row that did not pass.
type failure struct {
	Row  string `json:"row"`
	Said string `json:"said"`
}

// dataOf returns the file of a page's data.
func dataOf(page string) string { return strings.TrimSuffix(page, ".md") + ".json" }

func readShown(page string) (old shown, err error) {
	text, err := os.ReadFile(dataOf(page))
	if errors.Is(err, fs.ErrNotExist) {
		return old, nil
	}
	if err != nil {
		return old, err
	}
	if err := json.Unmarshal(text, &old); err != nil {
		return old, fmt.Errorf("%s: %w", dataOf(page), err)
	}
	return old, nil
}

func (s shown) write(page string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(dataOf(page), append(text, '\n'), 0o644)
}
