package main

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

func TestHeaderIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../../kernels/abi/arguments.gen.h")
	require.NoError(t, err)
	require.Equal(t, header(), string(have), "run go generate ./kernels")
}

// All instances of a family have the arguments of its first.
func TestInstancesAgree(t *testing.T) {
	first := map[string]kernels.Kernel{}
	for _, k := range kernels.All() {
		if _, ok := first[k.Family]; !ok {
			first[k.Family] = k
		}
		f := first[k.Family]
		require.Equal(t, f.ParamsIndex, k.ParamsIndex, k.Name)
		require.Equal(t, f.Constants, k.Constants, k.Name)
		require.Len(t, k.Args, len(f.Args))
		for i, a := range k.Args {
			require.Equal(t, [2]any{f.Args[i].Name, f.Args[i].Index}, [2]any{a.Name, a.Index}, k.Name)
		}
	}
}

// The header compiles as C and C++, and no name has two numbers.
func TestHeaderCompiles(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(SMELT_\w+) =`).FindAllStringSubmatch(header(), -1) {
		require.False(t, seen[m[1]], m[1])
		seen[m[1]] = true
	}
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	for _, language := range [][]string{{"c", "-std=c11"}, {"c++", "-std=c++17"}} {
		out, err := exec.Command(compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", language[1], "-x", language[0], "../../../kernels/abi/arguments.gen.h").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
