//go:build !linux

package clock

import "time"

var start = time.Now()

func now() int64 { return int64(time.Since(start)) + 1 }

func wallNow() int64 { return time.Now().UnixNano() }

// startedByKernel is not supported here.
func startedByKernel() (int64, bool) { return 0, false }
