package scenarios

import (
	"bytes"
	"strings"
	"time"
)

// Plain is one injection of a drawn schedule, in a form that can be written down.
type Plain struct {
	Use, On string
	At, For time.Duration // For 0: until the end
	Params  Params
	Note    string // a comment
}

// Drawn writes the scenario with these injections as its schedule, in a form that Parse reads. The promises of the
// schedule are kept. The head becomes a comment.
func (s Scenario) Drawn(head string, schedule []Plain) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(head) {
		b.WriteString("# " + strings.TrimSpace(line) + "\n")
	}
	for _, v := range s.root.Values {
		switch key := keyOf(v); {
		case key == "twins" || key == "chaos" && len(schedule) == 0:
		case key == "chaos":
			s.emitSchedule(&b, schedule)
		default:
			emitSection(&b, v)
		}
	}
	return b.Bytes()
}

func (s Scenario) emitSchedule(b *bytes.Buffer, schedule []Plain) {
	b.WriteString("chaos:\n")
	indent := "  "
	if s.Overlap != "" || s.Spare != "" {
		indent = "    "
		for _, k := range [][2]string{{"overlap", s.Overlap}, {"spare", s.Spare}} {
			if k[1] != "" {
				b.WriteString("  " + k[0] + ": " + k[1] + "\n")
			}
		}
		b.WriteString("  schedule:\n")
	}
	for _, p := range schedule {
		b.WriteString(indent + "- " + p.text() + "\n")
	}
}

// text returns the injection as an entry of a schedule.
func (p Plain) text() string {
	out := "{use: " + scalar(p.Use) + ", on: "
	if words := strings.Split(p.On, ", "); len(words) > 1 {
		for i := range words {
			words[i] = scalar(words[i])
		}
		out += "[" + strings.Join(words, ", ") + "]"
	} else {
		out += scalar(p.On)
	}
	out += ", at: " + scalar(p.At.String())
	if p.For > 0 {
		out += ", for: " + scalar(p.For.String())
	}
	if own := p.Params.String(); own != "" {
		out += ", " + own
	}
	out += "}"
	if p.Note != "" {
		out += " # " + strings.Join(strings.Fields(p.Note), " ")
	}
	return out
}
