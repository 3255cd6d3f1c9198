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

// TestLongPromptMemory runs a prompt that fills a context of 4,096: the process takes
// more than for a short one by no more than its cache, which holds every token. The
// activations of all tokens at once would be far more.
func TestLongPromptMemory(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))
	type figures struct {
		tokens                 int
		cache, arena, resident int64
	}
	measured := func(words int, context string) figures {
		var out, problems bytes.Buffer
		cmd := exec.Command(smelt, "run", model, "-p", strings.Repeat(" fox", words), "--ctx", context, "--kv", "f32", "-n", "1", "--device", "cpu", "--json")
		cmd.Env = append(os.Environ(), "GOGC=20") // the collector's leeway would hide what is measured
		cmd.Stdout, cmd.Stderr = &out, &problems
		require.NoError(t, cmd.Run(), problems.String())
		var answer struct {
			Prompt int `json:"prompt_tokens"`
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &answer))
		found := regexp.MustCompile(`cache (\d+) bytes, arena (\d+) bytes`).FindStringSubmatch(problems.String())
		require.NotNil(t, found, problems.String())
		f := figures{tokens: answer.Prompt, resident: cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10}
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
