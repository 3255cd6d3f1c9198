//go:build unix

package constrain_test

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time of the calling thread: others may have the cores.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
