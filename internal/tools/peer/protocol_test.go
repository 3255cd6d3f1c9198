//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func fakeEngine(t *testing.T, fault string) (*child, error) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fakeVariable+"="+fault)
	c, err := start(cmd)
	if err == nil {
		t.Cleanup(c.close)
	}
	return c, err
}

func TestChild(t *testing.T) {
	c, err := fakeEngine(t, "none")
	require.NoError(t, err)
	require.Equal(t, hello{Name: "fake", Version: "1", Threads: 2, Load: 0.5}, c.hello())
	require.NoError(t, c.fill(t.Context(), 4096))
	a, err := c.sample(t.Context(), cell{Test: prompting, Tokens: 512})
	require.NoError(t, err)
	require.Equal(t, answer{Seconds: 0.512, CPU: 1.024}, a)
	peak, err := c.peak(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1e6, peak)
	_, err = c.sample(t.Context(), cell{Test: generating, Tokens: 64, Depth: 8192})
	require.ErrorContains(t, err, `fake, asked for "tg 64 8192": too deep`)
	_, err = c.sample(t.Context(), cell{Test: generating, Tokens: 64})
	require.NoError(t, err, "an error is no end")
}

func TestChildFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"mute":     "the process has ended: cannot load the model",
		"nameless": "its first line does not name an engine",
	} {
		_, err := fakeEngine(t, fault)
		require.ErrorContains(t, err, want, fault)
	}
	for fault, want := range map[string]string{
		"dies":     "the process has ended: out of memory",
		"babbles":  `answered "hello there\n"`,
		"timeless": "took 0 s",
	} {
		c, err := fakeEngine(t, fault)
		require.NoError(t, err)
		_, err = c.sample(t.Context(), cell{Test: generating, Tokens: 64})
		require.ErrorContains(t, err, want, fault)
	}
}

// A process that has ended answers nothing more, and says why.
func TestChildGone(t *testing.T) {
	c, err := fakeEngine(t, "dies")
	require.NoError(t, err)
	for range 2 {
		_, err = c.peak(t.Context())
		require.ErrorContains(t, err, "out of memory")
	}
}

func TestServe(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	requests := strings.Join([]string{
		"pp 32 0", "tg 4 0", "tg 4 100", "fill 100 0", "tg 4 100", "fill 50 0", "pp 10 51", "pp 100 50", "peak", "dance 1 2", "tg -1 0", "pp",
		"many 4 8 3", "many 4 8 1", "many 4 0 3", "many 4 8", "many 4 400 3",
	}, "\n")
	var out bytes.Buffer
	require.NoError(t, serve(t.Context(), model, 1, 128, strings.NewReader(requests), &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 18)
	var h hello
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &h))
	require.Equal(t, "smelt", h.Name)
	require.Equal(t, 1, h.Threads)
	for i, want := range []string{
		"", "", "the sequence has 4 tokens", "", "", "", "the sequence has 50 tokens", "the cache 128", "", "no such request", "want 0 to 128", "no such request",
		"", "", "no such request", "no such request", "",
	} {
		var a answer
		require.NoError(t, json.Unmarshal([]byte(lines[i+1]), &a))
		if want != "" {
			require.Contains(t, a.Error, want)
			continue
		}
		require.Empty(t, a.Error, "line %d", i)
		switch i {
		case 5: // truncating takes no time
		case 8:
			require.Greater(t, a.Peak, int64(1<<20))
		default:
			require.Positive(t, a.Seconds)
			require.GreaterOrEqual(t, a.CPU, 0.0)
		}
	}
}

// An engine that waits for a request uses no processor: it would take it from its rival.
func TestIdleEngineSleeps(t *testing.T) {
	m := &measurement{options: &options{threads: 2}, slots: 64}
	c, err := m.serveSelf(t.Context(), testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"))
	require.NoError(t, err)
	t.Cleanup(c.close)
	_, err = c.sample(t.Context(), cell{Test: generating, Tokens: 8})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // once it has settled
		before := used(t, c.cmd.Process.Pid)
		time.Sleep(300 * time.Millisecond)
		return used(t, c.cmd.Process.Pid) == before
	}, 5*time.Second, time.Millisecond)
}

// used is the processor time of a process, in ticks of 10 ms.
func used(t *testing.T, pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(stat), ") ") // the name may hold anything
	fields := strings.Fields(after)
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return user + system
}

func TestServeNoModel(t *testing.T) {
	require.ErrorContains(t, serve(t.Context(), "none.gguf", 1, 128, strings.NewReader(""), &bytes.Buffer{}), "none.gguf")
}
