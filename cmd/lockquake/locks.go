package main

import (
	"reflect"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
)

// lockColumns are the headings of the table of locks, also in docs/backends.md.
var lockColumns = []string{
	"backend", "lock", "waits", "try", "renewal", "tells loss", "token", "re-entrant", "fair", "expires", "shared",
	"what it is",
}

// wrongMark separates the description of a lock from what is deliberately wrong with it.
const wrongMark = " WRONG: "

// lockRows returns the table of locks. With merge, backends with an identical lock share a row.
func lockRows(list []listed.Backend, merge bool) [][]string {
	var rows [][]string
	for _, b := range list {
		for _, l := range b.Locks {
			row := lockRow(b.Name, l)
			if i := sameLock(rows, row); merge && i >= 0 {
				rows[i][0] += ", " + b.Name
				continue
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// sameLock returns the index of a row that differs at most in the backend, or -1.
func sameLock(rows [][]string, row []string) int {
	for i, r := range rows {
		if reflect.DeepEqual(r[1:], row[1:]) {
			return i
		}
	}
	return -1
}

func lockRow(backend string, l backends.Lock) []string {
	doc := strings.Join(strings.Fields(l.Doc), " ")
	if l.Wrong != "" {
		doc += wrongMark + l.Wrong + "."
	}
	o := l.Offers
	return []string{
		backend, l.Name, mark(o.Blocking), mark(o.Try), unlessNo(o.Renewal), mark(o.LossSignal),
		unlessNo(string(o.Token)),
		unlessNo(o.Reentrant), mark(o.Fair), mark(o.Expires), mark(o.Shared), doc,
	}
}

func mark(yes bool) string {
	if yes {
		return "yes"
	}
	return "-"
}

// unlessNo returns the word of a capability, or "-" if there is none.
func unlessNo(word string) string {
	if word == "no" || word == "none" {
		return "-"
	}
	return word
}

// narrow shortens a row to 80 columns: what matters for the choice of a lock, and whether it is deliberately wrong.
func narrow(row []string) []string {
	doc := row[len(row)-1]
	wrong := mark(strings.Contains(doc, wrongMark))
	if doc == lockColumns[len(lockColumns)-1] {
		wrong = "wrong"
	}
	return []string{row[0], row[1], row[2], row[4], row[6], wrong}
}
