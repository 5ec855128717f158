// Package cli holds what all verbs of the command line share: streams, formats, exit codes, progress and Ctrl-C. It
// knows no verb.
package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// Streams are the streams of a verb: data goes to Out, everything for people to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Goroutine says that the verb shares its process with others.
	Goroutine bool
}

// Logger logs what a verb does in passing; without verbose only warnings and worse.
func Logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// CanAsk reports whether there is a person to ask.
func CanAsk(std Streams) bool {
	in, ok := std.In.(*os.File)
	return ok && cwriter.IsTerminal(int(in.Fd()))
}

// AskYes reports whether a question was answered with yes.
func AskYes(ctx context.Context, std Streams, question string) bool {
	fmt.Fprint(std.Err, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(oneByte{std.In}).ReadString('\n') // no answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case said := <-answer:
		return said == "y" || said == "yes"
	case <-ctx.Done():
		return false
	}
}

// oneByte reads one byte at a time: what follows belongs to the answer to the next question.
type oneByte struct{ io.Reader }

func (r oneByte) Read(b []byte) (int, error) { return r.Reader.Read(b[:min(1, len(b))]) }
