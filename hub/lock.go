package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a lock is tried that another holds.
const lockPoll = 100 * time.Millisecond

// lock waits until nobody else writes what a lock's file stands for.
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
		if locked { // of a file that its last holder has removed: the next one has another
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
