package integration_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/families"
)

// shown builds a program whose body a document shows.
func shown(t *testing.T, name, document string) (binary string) {
	path := testfiles.Path(t, "testdata/"+name+"/main.go")
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(source), "func main() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	require.LessOrEqual(t, len(strings.Split(body, "\n")), 11, "lines of a short program")
	text, err := os.ReadFile(testfiles.Path(t, document))
	require.NoError(t, err)
	body = strings.ReplaceAll(strings.TrimPrefix(body, "\t"), "\n\t", "\n")
	require.True(t, strings.Contains(string(text), body), "%s shows another program than %s", document, path)
	binary = filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", binary, path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// program runs a binary, by an emulator where it is for another processor: the command that
// SMELT_EXEC holds.
func program(binary string, args ...string) *exec.Cmd {
	line := append(append(strings.Fields(os.Getenv("SMELT_EXEC")), binary), args...)
	return exec.Command(line[0], line[1:]...)
}

// TestReadmeProgram runs the program that the README shows, in two turns of one text.
func TestReadmeProgram(t *testing.T) {
	binary := shown(t, "continue", "README.md")
	run := program(binary, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"))
	run.Stdin = strings.NewReader("Once upon a time\nThen Leo\n")
	out, err := run.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[0], ", there was a"), "%q", lines[0])
}

// TestReadmeServer runs the server that docs/go.md shows, and asks it.
func TestReadmeServer(t *testing.T) {
	binary := shown(t, "server", "docs/go.md")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	run := program(binary, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), address)
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill(); _ = run.Wait() }) // as it was told to
	var answer *http.Response
	require.Eventually(t, func() bool {
		answer, err = http.Post("http://"+address+"/ai/v1/chat/completions", "application/json",
			strings.NewReader(`{"model": "story", "messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 10}`))
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Contains(t, string(text), `"role":"assistant"`)
}

// TestReadmeFamilies holds the number of families that the documents give.
func TestReadmeFamilies(t *testing.T) {
	golden.CheckLine(t, testfiles.Path(t, "docs/tool.md"), "| families | ", fmt.Sprintf("[%d](families.md), each compared with llama.cpp |", len(families.All())))
	readme, err := os.ReadFile(testfiles.Path(t, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf(" %d model families", len(families.All())))
}
