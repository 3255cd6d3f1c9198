package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// screen is what a terminal shows, escape sequences included.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen int // what was waited for ends here
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// find looks for a pattern behind the last one.
func (s *screen) find(pattern *regexp.Regexp) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := pattern.FindIndex(s.text.Bytes()[s.seen:])
	if at != nil {
		s.seen += at[1]
	}
	return at != nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// keys are what cannot be written in a line of a script.
var keys = strings.NewReplacer("<enter>", "\r", "<ctrl-c>", "\x03", "<ctrl-d>", "\x04", "<up>", "\x1b[A", "<left>", "\x1b[D", "<tab>", "\t")

// talk, as "talk [>OUT] FILE STATUS ARGS…", runs the tool on a terminal, with standard output in a
// file where one is named. Lines of the file that begin with > are typed, others are patterns to
// wait for.
func talk(ts *testscript.TestScript, _ bool, args []string) {
	out, redirected := strings.CutPrefix(args[0], ">")
	if redirected {
		args = args[1:]
	}
	steps := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	path, err := exec.LookPath("smelt")
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(cmd.Environ(), "TERM=xterm", "SMELT_TUNED=off")
	if redirected {
		f, err := os.Create(ts.MkAbs(out))
		ts.Check(err)
		defer f.Close()
		cmd.Stdout = f
	}
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 200})
	ts.Check(err)
	defer terminal.Close()
	shown := &screen{}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(shown, terminal) // ends with an error once the program has
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	const patience = time.Minute
	for _, step := range steps {
		if typed, ok := strings.CutPrefix(step, "> "); ok {
			_, err := io.WriteString(terminal, keys.Replace(typed))
			ts.Check(err)
			continue
		}
		pattern := regexp.MustCompile(step)
		for begin := time.Now(); !shown.find(pattern); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > patience {
				_ = cmd.Process.Kill()
				ts.Fatalf("%s does not come; the terminal shows %q", step, shown)
			}
		}
	}
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		ts.Fatalf("smelt goes on; the terminal shows %q", shown)
	}
	<-copied
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit status %s, want %s; the terminal shows %q", got, args[1], shown)
	}
}
