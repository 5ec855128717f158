package wire

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OutliveReader makes a write to standard output or standard error that nobody reads any more an error. Without it
// the process dies of SIGPIPE in that write, with its faults still in place: when a supervisor is killed, its agent
// mostly has an answer under way. Processes that this one starts keep SIGPIPE as it is.
var OutliveReader = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })
