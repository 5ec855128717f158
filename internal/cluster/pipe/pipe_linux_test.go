package pipe

import (
	"errors"
	"io"
	"testing"
	"time"
)

// TestAHeldStreamIsCut: a stream that another process holds ends anyway, and its reader returns.
func TestAHeldStreamIsCut(t *testing.T) {
	t.Parallel()
	r, w, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	c := NewReader(r)
	got := make(chan error, 1)
	go func() {
		all, err := io.ReadAll(c)
		if string(all) != "x" {
			err = errors.Join(err, errors.New("read "+string(all)))
		}
		got <- err
	}()
	if c.ReleasedWithin(50 * time.Millisecond) {
		t.Error("a stream that is held is taken for one that nobody holds")
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	_ = w.Close()
	if !c.ReleasedWithin(time.Minute) {
		t.Error("a stream that nobody holds is taken for one that is held")
	}
}
