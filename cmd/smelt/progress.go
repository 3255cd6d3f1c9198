package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// patience is the time after which a bar appears.
const patience = time.Second

// bar shows a progress bar in bytes after patience has passed. It shows nothing
// off a terminal.
func bar(w io.Writer, what string) (progress func(done, total int64), finish func()) {
	if !showsBars(w) {
		return func(int64, int64) {}, func() {}
	}
	start := time.Now()
	var b *progressbar.ProgressBar
	progress = func(done, total int64) {
		if b == nil {
			if time.Since(start) < patience {
				return
			}
			b = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
				progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
		_ = b.Set64(done)
	}
	return progress, func() {
		if b != nil {
			_ = b.Finish()
		}
	}
}

// spin shows a spinner until the returned function is called.
func spin(w io.Writer, what string) (stop func()) { return watch(w, func() string { return what }) }

// watch is spin with a text that changes.
func watch(w io.Writer, what func() string) (stop func()) {
	if !showsBars(w) {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-quit:
			return
		case <-time.After(patience):
		}
		b := progressbar.NewOptions(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what()), progressbar.OptionClearOnFinish())
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				_ = b.Finish()
				return
			case <-tick.C:
				b.Describe(what())
				_ = b.Add(1)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func showsBars(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
