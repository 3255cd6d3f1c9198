//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// process runs the tool in a process of its own, and returns what it printed and the most memory
// that it had, in bytes.
func process(t *testing.T) func(in string, args ...string) (out, problems string, resident int64) {
	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))
	return func(in string, args ...string) (out, problems string, resident int64) {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(smelt, args...)
		cmd.Env = append(os.Environ(), "GOGC=20") // the collector's leeway would hide what is measured
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
		require.NoError(t, cmd.Run(), stderr.String())
		return stdout.String(), stderr.String(), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
}

// TestLongPromptMemory runs a prompt that fills a context of 4,096: the process takes
// more than for a short one by no more than its cache, which holds every token. The
// activations of all tokens at once would be far more.
func TestLongPromptMemory(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	run := process(t)
	type figures struct {
		tokens                 int
		cache, arena, resident int64
	}
	measured := func(words int, context string) figures {
		out, problems, resident := run("", "run", model, "-p", strings.Repeat(" fox", words), "--ctx", context, "--kv", "f32", "-n", "1", "--device", "cpu", "--json")
		var answer struct {
			Prompt int `json:"prompt_tokens"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &answer))
		found := regexp.MustCompile(`cache (\d+) bytes, arena (\d+) bytes`).FindStringSubmatch(problems)
		require.NotNil(t, found, problems)
		f := figures{tokens: answer.Prompt, resident: resident}
		f.cache, _ = strconv.ParseInt(found[1], 10, 64)
		f.arena, _ = strconv.ParseInt(found[2], 10, 64)
		return f
	}
	short, long := measured(200, "640"), measured(1340, "4096")
	require.Greater(t, long.tokens, 3900)
	require.Equal(t, short.arena, long.arena)
	t.Logf("short %+v, long %+v", short, long)
	const slack = 6 << 20
	require.Greater(t, long.arena*(4096/512-1), int64(slack), "or the bound could not fail")
	require.LessOrEqual(t, long.resident-short.resident, long.cache-short.cache+slack)
}
