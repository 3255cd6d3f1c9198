package testfiles_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// TestMetallibWithoutCompiler runs make metallib where xcrun finds no Metal compiler, as with
// the command line tools alone, or with Xcode 26 as installed.
func TestMetallibWithoutCompiler(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "xcrun"), []byte("#!/bin/sh\necho 'cannot execute tool' >&2\nexit 69\n"), 0o755))
	cmd := exec.Command("make", "-C", testfiles.Root(t), "metallib")
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "xcodebuild -downloadComponent MetalToolchain")
	require.Contains(t, string(out), "Running smelt needs none of it")
}

// TestJobsForMacs checks what the workflow runs on Macs: a hosted Mac is a virtual machine
// without a usable GPU and runs everything else; GPU jobs need a self-hosted runner.
func TestJobsForMacs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testfiles.Root(t), ".github", "workflows", "ci.yml"))
	require.NoError(t, err)
	jobs := map[string]string{}
	starts := regexp.MustCompile(`(?m)^  ([a-z]+):\n(?:    |  #)`).FindAllSubmatchIndex(text, -1)
	for i, m := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		jobs[string(text[m[2]:m[3]])] = string(text[m[0]:end])
	}
	runs := func(job string) string {
		var lines []string
		for _, m := range regexp.MustCompile(`(?m)^      - run: (.*)$`).FindAllStringSubmatch(jobs[job], -1) {
			lines = append(lines, m[1])
		}
		return strings.Join(lines, "\n")
	}
	require.Regexp(t, `runs-on: macos-[0-9]+\n`, jobs["macos"])
	for _, want := range []string{"make metallib", "go build ./...", "go vet", "go test ", "-downloadComponent MetalToolchain"} {
		require.Contains(t, runs("macos"), want)
	}
	require.NotContains(t, runs("macos"), "test-metal")
	require.Regexp(t, `runs-on: \[self-hosted, macOS, ARM64`, jobs["metal"])
	require.Contains(t, runs("metal"), "make test-metal")

	makefile, err := os.ReadFile(filepath.Join(testfiles.Root(t), "Makefile"))
	require.NoError(t, err)
	require.Regexp(t, `xcrun -sdk macosx metal [^|]*\\\n\s*-Wall -Werror -c `, string(makefile))
}
