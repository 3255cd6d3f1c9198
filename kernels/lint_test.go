package kernels_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tools/lint"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

// TestSourcesAreStrict runs the lint over what Metal's compiler will be given.
func TestSourcesAreStrict(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	for _, file := range kernels.Files() {
		t.Run(file, func(t *testing.T) {
			complaints, err := lint.Check(file, kernels.Source(file))
			require.NoError(t, err)
			for i, c := range complaints {
				complaints[i] = placed(file, c)
			}
			require.Empty(t, complaints)
		})
	}
}

// placed names the file and line of a complaint as they are before headers are inlined.
func placed(file, complaint string) string {
	rest, ok := strings.CutPrefix(complaint, file+":")
	digits, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return complaint
	}
	name, line := kernels.Place(file, n)
	return fmt.Sprintf("%s:%d:%s", name, line, rest)
}

// TestPlace checks that a line of an inlined source is found where it stands.
func TestPlace(t *testing.T) {
	for _, file := range kernels.Files() {
		n := 0
		for line := range strings.Lines(kernels.Source(file)) {
			n++
			if n%37 != 0 {
				continue
			}
			name, own := kernels.Place(file, n)
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, line, strings.SplitAfter(string(text), "\n")[own-1], "%s:%d", name, own)
		}
	}
}

// TestKernelsAreDocumented checks that the comment above each kernel, or the one at the
// top of its file, gives the grid and the threadgroup memory, and that every buffer but
// the parameters has its shape beside it.
func TestKernelsAreDocumented(t *testing.T) {
	for _, file := range kernels.Files() {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		functions := map[string]bool{}
		for _, k := range parse(t, file).Kernels {
			if functions[k.Function] {
				continue
			}
			functions[k.Function] = true
			t.Run(k.Function, func(t *testing.T) {
				head := slices.IndexFunc(lines, func(l string) bool {
					return strings.HasPrefix(strings.TrimPrefix(l, "kernel void "), k.Function+"(")
				})
				require.GreaterOrEqual(t, head, 0)
				above := prose(commentAbove(lines, head))
				require.Contains(t, above, k.Function)
				comment := above + " " + prose(leading(lines))
				require.Regexp(t, `(?i)\bgrid\b`, comment)
				require.Regexp(t, `(?i)threadgroup memory`, comment)
				for _, a := range k.Args {
					if a.Kind == mslgen.Buffer && a.Space == "device" {
						_, shape, _ := strings.Cut(lines[a.Line-1], "//")
						require.NotEmpty(t, strings.TrimSpace(shape), "%s:%d: %s has no shape", file, a.Line, a.Name)
					}
				}
			})
		}
	}
}

// commentAbove returns the last comment of whole lines above a line.
func commentAbove(lines []string, at int) []string {
	end := at
	for end > 0 && !strings.HasPrefix(lines[end-1], "//") {
		end--
	}
	start := end
	for start > 0 && strings.HasPrefix(lines[start-1], "//") {
		start--
	}
	return lines[start:end]
}

func leading(lines []string) []string {
	return lines[:slices.IndexFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "//") })]
}

// prose joins the lines of a comment.
func prose(lines []string) string {
	var words []string
	for _, l := range lines {
		words = append(words, strings.Fields(strings.TrimPrefix(l, "//"))...)
	}
	return strings.Join(words, " ")
}
