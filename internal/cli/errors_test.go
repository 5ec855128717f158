package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/scenarios"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{Exit{Code: 1}, 1},
		{engine.UsageError{Text: "x"}, 2},
		{fmt.Errorf("run: %w", engine.UsageError{Text: "x"}), 2},
		{fmt.Errorf("run: %w", &scenarios.Error{Message: "x"}), 2},
		{engine.MissingError{Text: "x"}, 3},
		{fmt.Errorf("run: %w", chaos.Unavailable{What: "x"}), 3},
		{fmt.Errorf("check: %w", history.ErrCorrupt), 4},
		{io.ErrUnexpectedEOF, 4},
	} {
		if got := ExitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, should be %d", c.err, got, c.code)
		}
	}
}

func TestTheWorstExitCodeWins(t *testing.T) {
	t.Parallel()
	order := []int{CodeMet, CodeInconclusive, CodeFailed, CodeUsage, CodeMissing, CodeInterrupted}
	for i, a := range order {
		for j, b := range order {
			if got, want := Worse(a, b), order[max(i, j)]; got != want {
				t.Errorf("%d and %d make %d, should be %d", a, b, got, want)
			}
		}
	}
}

func TestPrintedErrorIsNotRepeated(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	Complain(&b, Exit{Code: 1})
	Complain(&b, nil)
	if b.Len() > 0 {
		t.Errorf("printed %q", b.String())
	}
	Complain(&b, errors.New("what: where"))
	if b.String() != "lockquake: what: where\n" {
		t.Errorf("printed %q", b.String())
	}
}
