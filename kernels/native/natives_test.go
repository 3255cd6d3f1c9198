package native

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the list of kernels")

// TestNames compares the list of native kernels in package kernels, which exists for builds
// without C++, with the kernels of every set of this machine.
func TestNames(t *testing.T) {
	names := slices.Sorted(slices.Values(Names()))
	for _, l := range Libraries() {
		require.Equal(t, names, slices.Sorted(slices.Values(l.Names())), l.ISA())
	}
	var b strings.Builder
	b.WriteString(`// Code generated from what package native has by go test ./kernels/native -run TestNames -update. DO NOT EDIT.

package kernels

// natives are the kernels that package native has for every processor.
var natives = []string{
`)
	for _, name := range names {
		fmt.Fprintf(&b, "\t%q,\n", name)
	}
	b.WriteString("}\n")
	const file = "../natives.gen.go"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "the kernels have changed: run go test ./kernels/native -run TestNames -update")
}

// TestVersion checks that committed sources identify a build, and its executable any other.
func TestVersion(t *testing.T) {
	require.Regexp(t, "^[0-9a-f]{64}$", Version())
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "c0ffee"}}
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want bool
	}{
		"clean":     {debug.BuildInfo{Main: debug.Module{Path: module}, Settings: append(revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"})}, true},
		"changed":   {debug.BuildInfo{Main: debug.Module{Path: module}, Settings: append(revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"})}, false},
		"test":      {debug.BuildInfo{Main: debug.Module{Path: module}}, false},
		"installed": {debug.BuildInfo{Main: debug.Module{Path: module, Sum: "h1:"}}, true},
		"used":      {debug.BuildInfo{Main: debug.Module{Path: "outside"}, Deps: []*debug.Module{{Path: module, Sum: "h1:"}}}, true},
		"replaced":  {debug.BuildInfo{Main: debug.Module{Path: "outside"}, Deps: []*debug.Module{{Path: module, Replace: &debug.Module{Path: "../smelt"}}}}, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, committed(&test.info)) })
	}
}
