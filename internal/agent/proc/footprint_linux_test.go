package proc

import (
	"os"
	"runtime"
	"testing"
)

// TestFootprint opens files and starts threads, and counts as many more.
func TestFootprint(t *testing.T) {
	before, err := FootprintOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if before.Memory < 1<<20 || before.Threads < 2 || before.Descriptors < 3 {
		t.Errorf("this process has %+v", before)
	}
	const more = 20
	over, begun := make(chan struct{}), make(chan struct{})
	defer close(over)
	for range more {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		go func() {
			runtime.LockOSThread()
			begun <- struct{}{}
			<-over
		}()
		<-begun
	}
	after, err := FootprintOf(os.Getpid())
	if err != nil || after.Descriptors-before.Descriptors < more || after.Threads-before.Threads < more/2 {
		t.Errorf("after %d more of each: %+v, before %+v, %v", more, after, before, err)
	}
	if _, err := FootprintOf(1 << 30); err == nil {
		t.Error("a process that is not there has a footprint")
	}
}
