package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/itchyny/gojq"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	_ "github.com/smelt-ml/smelt/internal/golden" // for its flag -update
	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
)

func TestMain(m *testing.M) {
	if _, set := os.LookupEnv("SMELT_TUNED"); !set {
		os.Setenv("SMELT_TUNED", "off") // what was measured here is no part of what is tested
	}
	testscript.Main(m, commands)
}

// commands are what the test binary is under other names.
var commands = map[string]func(){"smelt": main}

// links are the files that every script finds in its folder, where they exist; a folder and a
// vocabulary alone are made.
var links = []string{
	"testdata/models/tiny-qwen3/gguf/tiny-qwen3-F16.gguf",
	"testdata/models/tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf",
	"testdata/models/tiny-llama/gguf/tiny-llama-F16.gguf",
	"testdata/models/tiny-llama/gguf/tiny-llama-Q4_0.gguf",
	"../shared/data/tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf",
	"../shared/data/tokenizers/ggml-vocab/ggml-vocab-qwen2.gguf",
}

// TestScripts runs the tool as a person would: each script in testdata/script is a
// session, with the files it needs below the commands. Run with -update to write
// the expected outputs anew.
func TestScripts(t *testing.T) {
	found := map[string]string{}
	for _, link := range links {
		path := filepath.Join(testfiles.Root(t), link)
		if _, err := os.Stat(path); err == nil {
			found[filepath.Base(path)] = path
		}
	}
	found["hf"] = tiny.Folder(t, "tiny-qwen3")
	found["mlx"] = tiny.NewMLX(t, "tiny-qwen3", tiny.Packing{Bits: 4, Group: 64, Scales: dtype.BF16}).Write(t)
	found["tiny-qwen3-vocab.gguf"] = tiny.Vocabulary(t, "tiny-qwen3")
	found["narrow-F16.gguf"] = narrow(t, "f16")
	if !testing.Short() { // hundreds of megabytes
		found["random-Q4_0.gguf"] = filepath.Join(t.TempDir(), "random.gguf")
		status, _, problems := call(t, "synth", "arch:qwen3-0.6b", "--type", "q4_0", "--seed", "4", "-o", found["random-Q4_0.gguf"])
		require.Zero(t, status, problems)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       flag.Lookup("update").Value.(flag.Getter).Get().(bool),
		Setup: func(env *testscript.Env) error {
			if cache, err := os.UserCacheDir(); err == nil {
				env.Setenv("USER_CACHE", cache)
			}
			env.Setenv("SMELT_TUNED", "off")
			for name, path := range found {
				if err := os.Symlink(path, filepath.Join(env.WorkDir, name)); err != nil {
					return err
				}
			}
			return nil
		},
		Condition: func(name string) (bool, error) { // [have:FILE]
			if file, ok := strings.CutPrefix(name, "have:"); ok {
				return found[file] != "", nil
			}
			return false, fmt.Errorf("no condition is called %s", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"usage":     func(ts *testscript.TestScript, _ bool, args []string) { fails(ts, exitUsage, args) },
			"failure":   func(ts *testscript.TestScript, _ bool, args []string) { fails(ts, exitFailure, args) },
			"interrupt": interrupt,
			"talk":      talk,
			"jq":        jq,
			"jsonl":     jsonl,
			"npy":       npyShape,
			"graph":     parseGraph,
			"truncate":  truncate,
			"poke":      poke,
			"keep":      keep,
		},
	})
}

// fails, as "usage PATTERN ARGS…" or "failure PATTERN ARGS…", wants an exit
// status, nothing on standard output, and one line on standard error that matches.
func fails(ts *testscript.TestScript, status int, args []string) {
	err := ts.Exec("smelt", args[1:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != status {
		ts.Fatalf("smelt %q: %v, want exit status %d", args[1:], err, status)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("standard output: %q, want nothing", out)
	}
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stderr"), "\n"), "\n")
	if strings.HasPrefix(lines[0], "smelt: weights ") {
		lines = lines[1:]
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "smelt: ") {
		ts.Fatalf("standard error: %q, want one line", lines)
	}
	if !regexp.MustCompile(args[0]).MatchString(lines[0]) {
		ts.Fatalf("standard error: %q does not match %s", lines[0], args[0])
	}
}

// interrupt, as "interrupt MILLISECONDS ARGS…", sends SIGINT after that time and
// wants the exit status of the contract soon after. A program that had not begun by then, as
// other tests may have the cores, gets more time.
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	wait, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath("smelt")
	ts.Check(err)
	for ; ; wait *= 2 {
		cmd := exec.Command(path, args[1:]...)
		cmd.Dir = ts.MkAbs(".")
		ts.Check(cmd.Start())
		time.Sleep(time.Duration(wait) * time.Millisecond)
		ts.Check(cmd.Process.Signal(os.Interrupt))
		start := time.Now()
		err = cmd.Wait()
		var exit *exec.ExitError
		ended := errors.As(err, &exit)
		if ended && !exit.Exited() && wait < 4000 { // the signal itself ended it
			continue
		}
		if !ended || exit.ExitCode() != exitStopped {
			ts.Fatalf("smelt %q: %v after an interrupt, want exit status %d", args[1:], err, exitStopped)
		}
		if late := time.Since(start); late > grace+5*time.Second {
			ts.Fatalf("smelt %q: stopped %v after the interrupt", args[1:], late)
		}
		return
	}
}

// jq, as "jq FILE EXPRESSION WANT", wants a file that holds one JSON value, and an
// expression of it that gives WANT.
func jq(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(d.Decode(&v))
	if _, err := d.Token(); err != io.EOF {
		ts.Fatalf("%s holds more than one JSON value", args[0])
	}
	evaluate(ts, neg, args, v)
}

// jsonl is jq for a file with a JSON value a line, and an expression of all in an array.
func jsonl(ts *testscript.TestScript, neg bool, args []string) {
	all := []any{}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var v any
		ts.Check(json.Unmarshal([]byte(line), &v))
		all = append(all, v)
	}
	evaluate(ts, neg, args, all)
}

func evaluate(ts *testscript.TestScript, neg bool, args []string, v any) {
	query, err := gojq.Parse(args[1])
	ts.Check(err)
	got, ok := query.Run(v).Next()
	if err, failed := got.(error); failed || !ok {
		ts.Fatalf("%s: %v", args[1], err)
	}
	text, err := gojq.Marshal(got)
	ts.Check(err)
	if (string(text) == args[2]) == neg {
		ts.Fatalf("%s is %s, not %s", args[1], text, args[2])
	}
}

// npyShape, as "npy FILE SHAPE", wants an array of float32.
func npyShape(ts *testscript.TestScript, _ bool, args []string) {
	a, err := npy.ReadFile[float32](ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprint(a.Shape); got != args[1] {
		ts.Fatalf("%s has the shape %s, not %s", args[0], got, args[1])
	}
}

// parseGraph, as "graph FILE VERTICES", wants DOT that Graphviz reads; VERTICES is
// a count, or + for any above none. They are laid out as boxes in a box, which takes a
// tenth of the time of ranks.
func parseGraph(ts *testscript.TestScript, _ bool, args []string) {
	dot := strings.Replace(ts.ReadFile(args[0]), "{\n", "{\nlayout=osage; splines=none;\n", 1)
	plain, err := graphviz.Render(context.Background(), []byte(dot), "plain")
	ts.Check(err)
	n := strings.Count(string(plain), "\nnode ")
	if n == 0 || args[1] != "+" && strconv.Itoa(n) != args[1] {
		ts.Fatalf("%s has %d vertices, not %s", args[0], n, args[1])
	}
}

// truncate, as "truncate FROM TO BYTES", copies the first bytes of a file.
func truncate(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0]))[:n], 0o644))
}

// poke, as "poke FILE OFFSET BYTE", changes one byte.
func poke(ts *testscript.TestScript, _ bool, args []string) {
	data := []byte(ts.ReadFile(args[0]))
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	value, err := strconv.ParseUint(args[2], 0, 8)
	ts.Check(err)
	data[at] = byte(value)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}

// keep, as "keep FILE", writes what the last command printed to a file.
func keep(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile("stdout")), 0o644))
}

// TestDocuments runs the lines of docs/tool.md's table of verbs in a shell, and compares the
// model of docs/go.md with the one that is built.
func TestDocuments(t *testing.T) {
	root := testfiles.Root(t)
	tool, err := os.ReadFile(filepath.Join(root, "docs", "tool.md"))
	require.NoError(t, err)
	model := regexp.MustCompile(`(?m)^    (M=.*)$`).FindSubmatch(tool)
	require.NotNil(t, model)
	lines := regexp.MustCompile("(?m)^\\| [^|]* \\| `(smelt [^`]*)` \\|$").FindAllSubmatch(tool, -1)
	shown := map[string]bool{"serve": true, "pull": true} // one does not end, the other asks the network
	for _, line := range lines {
		shown[strings.Fields(string(line[1]))[1]] = true
	}
	for _, verb := range verbs {
		require.Contains(t, shown, verb().Name())
	}

	page, err := os.ReadFile(filepath.Join(root, "docs", "go.md"))
	require.NoError(t, err)
	definition := regexp.MustCompile("(?s)```go\n(func .*?\n}\n)").FindSubmatch(page)
	require.NotNil(t, definition)
	outside, err := os.ReadFile(filepath.Join(root, "testdata", "outside", "main.go"))
	require.NoError(t, err)
	require.Contains(t, string(outside), string(definition[1]))

	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "bin", "smelt"))) // TestMain goes by the name
	require.NoError(t, os.Symlink(filepath.Join(root, "testdata"), filepath.Join(dir, "testdata")))
	for _, line := range lines {
		t.Run(string(line[1]), func(t *testing.T) {
			if testing.Short() && strings.Contains(string(line[1]), "synth") {
				t.Skip("writes hundreds of megabytes")
			}
			cmd := exec.Command("sh", "-c", string(model[1])+"\n"+string(line[1]))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// call runs the tool in this process.
func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, problems strings.Builder
	status = run(t.Context(), args, strings.NewReader(""), &out, &problems)
	return status, out.String(), problems.String()
}

// TestDamagedFiles cuts files off at many lengths, and changes bytes of them: an
// error that names the file, or an answer, but nothing broken of ours.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	model := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf")
	plan := filepath.Join(dir, "whole.plan")
	status, _, problems := call(t, "compile", model, "--target", "cpu", "-o", plan)
	require.Zero(t, status, problems)
	anyModel := [][]string{{"inspect"}, {"tokenize"}, {"run", "-p", "a", "-n", "1"}}
	for _, kind := range []struct {
		name, from string // name is that of the damaged file, in a folder where it is part of a model
		verbs      [][]string
	}{
		{"x.gguf", model, anyModel},
		{"x.plan", plan, [][]string{{"inspect"}, {"run", "--weights", model, "-p", "a", "-n", "1"}, {"dot", "--stage", "plan"}}},
		{"hf/model.safetensors", "tiny-llama", anyModel[2:]},
		{"hf/config.json", "tiny-llama", anyModel[2:]},
		{"hf/tokenizer.json", "tiny-llama", anyModel[1:]},
	} {
		t.Run(kind.name, func(t *testing.T) {
			path := filepath.Join(dir, kind.name)
			from, model := kind.from, path
			if folder := filepath.Dir(kind.name); folder != "." {
				from = filepath.Join(tiny.Folder(t, kind.from), filepath.Base(kind.name))
				model = filepath.Join(dir, folder)
				require.NoError(t, os.RemoveAll(model))
				require.NoError(t, os.CopyFS(model, os.DirFS(filepath.Dir(from))))
			}
			damage(t, from, path, model, kind.verbs)
		})
	}
}

// damage writes damaged copies of a file to path and hands model to the verbs.
func damage(t *testing.T, from, path, model string, verbs [][]string) {
	whole, err := os.ReadFile(from)
	require.NoError(t, err)
	check := func(t *testing.T, data []byte, mayWork bool) {
		require.NoError(t, os.WriteFile(path, data, 0o644))
		for _, verb := range verbs {
			status, _, problems := call(t, append([]string{verb[0], model}, verb[1:]...)...)
			require.NotContains(t, problems, "internal error", "%s", verb)
			if status == 0 {
				require.True(t, mayWork, "%s takes it", verb)
				continue
			}
			require.Contains(t, problems, model, "%s", verb)
		}
	}
	json := strings.HasSuffix(path, ".json") // may lose the end of its last line
	for _, n := range lengths(len(whole)) {
		t.Run(fmt.Sprintf("%d bytes", n), func(t *testing.T) { check(t, whole[:n], json && n >= len(whole)-2) })
	}
	for i := range 60 {
		at := i * i * min(len(whole), 40000) / 3600
		t.Run(fmt.Sprintf("byte %d", at), func(t *testing.T) {
			data := append([]byte(nil), whole...)
			data[at] ^= byte(1 << (i % 8))
			check(t, data, true)
		})
	}
}

// lengths are dense at the start of a file, where its header is, and thin out.
func lengths(size int) []int {
	list := []int{size - 1, size - 40}
	for n := 0; n < size; n += 1 + n/6 {
		list = append(list, n)
	}
	return list
}
