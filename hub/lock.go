package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is the interval between tries of a lock.
const lockPoll = 100 * time.Millisecond

// lock waits until no other process holds the lock file at path, and locks it.
func lock(ctx context.Context, path string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if locked && isAt(f, path) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if locked { // if its last holder has removed the file, later processes lock a new one
			continue
		}
		if err := pause(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

func isAt(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
