package wire

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OutliveReader turns a write to standard output or standard error that has no reader any more into an error. Without
// it, SIGPIPE kills the process in that write, with its faults still in place. That is likely: when a supervisor is
// killed, its agent mostly has an answer under way. Child processes keep the default SIGPIPE.
var OutliveReader = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })
