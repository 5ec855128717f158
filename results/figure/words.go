package figure

import "strings"

// Words turns the name of a count, a measure or a kind of witness into words.
func Words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// Wrap breaks a text into lines of at most width characters, at spaces.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Shorten cuts a text at a word.
func Shorten(text string, width int) string {
	if len([]rune(text)) <= width {
		return text
	}
	cut := string([]rune(text)[:width])
	if i := strings.LastIndexByte(cut, ' '); i > width/2 {
		cut = cut[:i]
	}
	return strings.TrimRight(cut, ",:") + " …"
}
