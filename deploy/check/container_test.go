package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// image reads a Containerfile as BuildKit does.
func image(text string) (stages []instructions.Stage, warnings []string, err error) {
	tree, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) { warnings = append(warnings, rule+": "+text) }})
	stages, _, err = instructions.Parse(tree.AST, lint)
	for _, w := range tree.Warnings {
		warnings = append(warnings, w.Short)
	}
	return stages, warnings, err
}

// TestContainerfile: BuildKit reads it without a warning; what runs has a user by number, no
// command that would need a shell, and ends by SIGTERM.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../Containerfile")
	require.NoError(t, err)
	stages, warnings, err := image(string(text))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Len(t, stages, 2)
	last := stages[1]
	var user, signal string
	var entry, args []string
	for _, command := range last.Commands {
		switch c := command.(type) {
		case *instructions.RunCommand:
			t.Errorf("%s needs a shell", c)
		case *instructions.CopyCommand:
			require.Equal(t, "build", c.From)
		case *instructions.UserCommand:
			user = c.User
		case *instructions.StopSignalCommand:
			signal = c.Signal
		case *instructions.EntrypointCommand:
			require.False(t, c.PrependShell)
			entry = c.CmdLine
		case *instructions.CmdCommand:
			require.False(t, c.PrependShell)
			args = c.CmdLine
		}
	}
	require.Equal(t, "65532:65532", user)
	require.Equal(t, "SIGTERM", signal)
	require.Equal(t, []string{"/usr/local/bin/smelt"}, entry)
	require.Equal(t, "serve", args[0])

	_, _, err = image(strings.Replace(string(text), "STOPSIGNAL", "STOPSIGNALS", 1))
	require.Error(t, err)
	_, warnings, err = image(strings.Replace(string(text), "FROM golang", "from golang", 1))
	require.NoError(t, err)
	require.NotEmpty(t, warnings)
}

// TestReadOnlyRoot runs the server as its container would: with the arguments of the manifest, as
// its user, without capabilities, on a file system that has the binary, the libraries that it
// links and a model, all of which it cannot write.
func TestReadOnlyRoot(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil && !strings.Contains(os.Getenv("SMELT_FULL"), "deployed") {
		t.Skip("bubblewrap is not installed; make deployed does so")
	}
	smelt := tool(t)
	out, err := exec.Command("ldd", smelt).Output()
	require.NoError(t, err)
	args := []string{"--unshare-all", "--share-net", "--die-with-parent", "--uid", "65532", "--gid", "65532", "--cap-drop", "ALL", "--clearenv",
		"--proc", "/proc", "--dev", "/dev", "--ro-bind", smelt, "/usr/local/bin/smelt"}
	var linked []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			args = append(args, "--ro-bind", word, word)
			linked = append(linked, strings.SplitN(filepath.Base(word), ".so", 2)[0])
		}
	}
	// What gcr.io/distroless/cc-debian12 has: glibc, libgcc and libstdc++.
	require.ElementsMatch(t, []string{"libc", "libm", "libgcc_s", "libstdc++", "ld-linux-x86-64"}, linked)
	args = append(args, "--ro-bind", model, "/models/model.gguf", "--remount-ro", "/", "--", "/usr/local/bin/smelt")

	text, err := os.ReadFile("../kubernetes/server.yaml")
	require.NoError(t, err)
	var d apps.Deployment
	require.NoError(t, yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), &d))
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--addr=") {
			arg = "--addr=127.0.0.1:0"
		}
		args = append(args, arg)
	}
	url := start(t, exec.Command("bwrap", append(args, "--device=cpu")...))
	answer, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model": "model", "prompt": "Once", "max_tokens": 3}`))
	require.NoError(t, err)
	defer answer.Body.Close()
	var c struct{ Usage map[string]any }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&c))
	require.Equal(t, "3", fmt.Sprint(c.Usage["completion_tokens"]))
}
