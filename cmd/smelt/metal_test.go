//go:build fakemetal && linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// TestDefaultDevice runs the verbs as somebody on a Mac would, without naming a device:
// what they compile is for Metal, and it runs there.
func TestDefaultDevice(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	dir := t.TempDir()
	out := func(name string) string { return filepath.Join(dir, name) }
	answer := func(args ...string) (a struct {
		Text, Device string
		Tokens       []int32
	}) {
		t.Helper()
		status, stdout, problems := call(t, args...)
		require.Zero(t, status, problems)
		require.NoError(t, json.Unmarshal([]byte(stdout), &a))
		return a
	}
	good := func(args ...string) string {
		t.Helper()
		status, stdout, problems := call(t, args...)
		require.Zero(t, status, "%s: %s", args, problems)
		return stdout + problems
	}
	refused := func(want string, args ...string) {
		t.Helper()
		status, _, problems := call(t, args...)
		require.Equal(t, exitFailure, status)
		require.Regexp(t, want, problems)
	}

	run := []string{"run", model, "-p", "Once upon a time", "-n", "12", "--json"}
	plain := answer(run...)
	require.Equal(t, "metal", plain.Device)
	require.Equal(t, answer(append(run, "--device", "emu")...).Tokens, plain.Tokens)
	require.Equal(t, plain, answer(append(run, "--device", "auto")...))
	require.Equal(t, "cpu", answer(append(run, "--device", "cpu")...).Device)

	// Options that only a plan for Metal has are taken.
	require.Equal(t, plain.Text, answer(append(run, "--products", "auto")...).Text)
	require.Equal(t, "metal", answer(append(run, "--act", "f16")...).Device)

	// Plans: that of the default target runs on the default device.
	plan, other := out("tiny.plan"), out("cpu.plan")
	good("compile", model, "-o", plan)
	require.Equal(t, plain, answer("run", plan, "--weights", model, "-p", "Once upon a time", "-n", "12", "--json"))
	good("compile", model, "--target", "cpu", "-o", other)
	refused("cpu.plan: .*compiled for cpu, and the device metal runs plans for metal; --device cpu runs it\n$",
		"run", other, "--weights", model, "-p", "x")
	refused("cpu.plan: .*compiled for cpu, and the device metal runs plans for metal", "verify", other, "--weights", model)
	require.Equal(t, "cpu", answer("run", other, "--weights", model, "-p", "x", "-n", "1", "--json", "--device", "cpu").Device)

	// The other verbs that execute. Metal's logits are the emulator's, to the bit.
	require.Contains(t, good("bench", model, "-p", "4", "-n", "2", "-r", "1"), "on metal (")
	text := out("text.txt")
	require.NoError(t, os.WriteFile(text, []byte("Once upon a time there was a little fox who lived in the wood."), 0o600))
	for device, flags := range map[string][]string{"auto": nil, "emu": {"--device", "emu"}} {
		good(append([]string{"logits", model, "--tokens", "704,703,258", "-o", out(device + ".npy")}, flags...)...)
	}
	require.Equal(t, read(t, out("emu.npy")), read(t, out("auto.npy")))
	scored := []string{"perplexity", model, "--file", text, "--window", "8"}
	compiled := regexp.MustCompile(`compiled [0-9]+ kernels in [0-9.]+ s, 0 of them kept from before\n$`)
	onMetal := good(scored...)
	require.Regexp(t, compiled, onMetal)
	require.Equal(t, good(append(scored, "--device", "emu")...), compiled.ReplaceAllString(onMetal, ""))
	require.Contains(t, good("verify", model), "tokens on metal, activations in f16")
}

// TestDefaultDeviceFallsBack has a GPU that is no use: one line says that the CPU runs, and
// why; to who asks for the CPU, nothing does.
func TestDefaultDeviceFallsBack(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	lines := func(device string) (n int) {
		smelt := exec.Command("smelt", "run", model, "-p", "Once", "-n", "2", "--json", "--device", device)
		smelt.Env = append(os.Environ(), "SMELT_FAKE_METAL=hosted")
		var problems strings.Builder
		smelt.Stderr = &problems
		stdout, err := smelt.Output()
		require.NoError(t, err, problems.String())
		var a struct{ Device string }
		require.NoError(t, json.Unmarshal(stdout, &a))
		require.Equal(t, "cpu", a.Device)
		for line := range strings.Lines(problems.String()) {
			if strings.Contains(line, "running on the CPU: ") {
				require.Contains(t, line, "no Metal device: Apple Paravirtual device is of GPU family Apple5")
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, lines("auto"))
	require.Zero(t, lines("cpu"))
}

// choices is a program that prints what openSession, which the verbs that execute call, chose
// by size.
func init() {
	commands["choices"] = func() {
		var compile compileFlags
		var device deviceFlags
		cmd := &cobra.Command{Use: "choices MODEL", RunE: func(cmd *cobra.Command, args []string) error {
			s, p, err := openSession(cmd, args[0], &compile, &device)
			if err != nil {
				return err
			}
			defer s.Loaded().Close()
			for i := range p.Plan.Phases {
				for _, c := range p.Plan.Phases[i].Choices {
					fmt.Println(p.Plan.Phases[i].Name, c.Kernel, c.Choice, c.Reason)
				}
			}
			return nil
		}}
		compile.add(cmd.Flags())
		device.add(cmd.Flags())
		device.addWeights(cmd.Flags())
		if cmd.Execute() != nil {
			os.Exit(1)
		}
	}
}

// TestChipOfTheDevice runs what run and bench compile on GPUs of several names and sizes.
func TestChipOfTheDevice(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	choices := func(gpu string, args ...string) string {
		c := exec.Command("choices", append(args, model)...)
		c.Env = append(os.Environ(), "SMELT_FAKE_METAL="+gpu)
		var problems strings.Builder
		c.Stderr = &problems
		out, err := c.Output()
		require.NoError(t, err, problems.String())
		return string(out)
	}
	require.Contains(t, choices("Apple M4 Max,9,32"), "32 cores of apple9 (m4-max)")
	require.Contains(t, choices("Apple M5,10,8"), "8 cores of apple10 (m5)")
	require.Contains(t, choices("Apple M9 Ultra,11,96"), "96 cores of apple10 (m9-ultra)")
	require.Contains(t, choices("Apple M1,7,0"), "8 cores of apple7 (m1)", "the registry does not tell")
	require.NotEqual(t, choices("Apple M9,11,2"), choices("Apple M9,11,200"))
	require.Contains(t, choices("Apple M4 Max,9,32", "--device", "emu"), "16 cores of an unnamed chip")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
