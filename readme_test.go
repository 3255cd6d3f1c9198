package smelt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models"
)

// TestReadmeProgram runs the program that the README shows, in two turns of one text.
func TestReadmeProgram(t *testing.T) {
	const path = "testdata/continue/main.go"
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(source), "func main() {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	require.Len(t, strings.Split(body, "\n"), 15, "lines of a program as long as a message")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	shown := strings.ReplaceAll(strings.TrimPrefix(body, "\t"), "\n\t", "\n")
	require.True(t, strings.Contains(string(readme), shown), "the README shows another program than %s", path)

	binary := filepath.Join(t.TempDir(), "continue")
	out, err := exec.Command("go", "build", "-o", binary, "./testdata/continue").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command(binary, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"))
	run.Stdin = strings.NewReader("Once upon a time\nThen Leo\n")
	out, err = run.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[0], ", there was a"), "%q", lines[0])
}

// TestReadmeFamilies keeps the row of families that the README has.
func TestReadmeFamilies(t *testing.T) {
	titles := lo.Map(models.Families(), func(f models.Family, _ int) string { return f.Title })
	golden.CheckLine(t, "README.md", "| families | ", strings.Join(titles, " · ")+" |")
}
