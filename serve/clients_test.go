package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/serve"
)

// answered runs a client and requires that it says ok and no more.
func answered(t *testing.T, dir string, command ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var said bytes.Buffer // warnings of the clients' own, and what failed
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, &said)
	require.Equal(t, "ok", strings.TrimSpace(string(out)))
}

// TestGoClient: OpenAI's own client for Go reads whole answers, streams and errors.
func TestGoClient(t *testing.T) {
	packages(t)
	s := newServed(t, serve.Options{Keys: []string{"secret"}}, 4)
	answered(t, "testdata/clients/openai", "go", "run", ".", s.url, name, "secret")
}

// packages is the folder where make clients puts packages of npm.
func packages(t *testing.T) string {
	dir := filepath.Join(testfiles.Root(t), "build", "clients")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		if testfiles.Full("clients") {
			t.Fatal("make clients installs what is missing: ", err)
		}
		t.Skip("the packages of make clients are not installed")
	}
	return dir
}

// TestClients: clients in JavaScript, which read streams strictly, find what they expect.
func TestClients(t *testing.T) {
	dir := packages(t)
	s := newServed(t, serve.Options{}, 8)
	scripts, err := filepath.Glob("testdata/clients/*.mjs")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			source, err := os.ReadFile(script)
			require.NoError(t, err)
			there := filepath.Join(dir, filepath.Base(script)) // where its packages are found
			require.NoError(t, os.WriteFile(there, source, 0o644))
			answered(t, dir, "node", there, s.url, name)
		})
	}
}

// passing are tests of the conformance suite that turn on what the model says, which with one
// as small as this need not be what they wait for; each with the reason.
var passing = map[string]string{
	"structured_output.json_object": "nothing bounds the object, and this model does not end it before its context does",
}

// TestConformance: of a suite for servers of this API nothing fails.
func TestConformance(t *testing.T) {
	dir := packages(t)
	// The suite leaves much to chance, and its turns grow.
	s := newServedWith(t, serve.Options{Sampling: &smelt.Sampling{}}, 8, 2048)
	report := filepath.Join(t.TempDir(), "report.json")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", "webai-at-home"), "openai_test", "conformance",
		"--profile", "full", "--model", name, "--base_url", s.url+"/v1", "--format", "json", "--output", report)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	raw, err := os.ReadFile(report)
	require.NoError(t, err)
	var got struct {
		Tests []struct{ ID, Status, Detail string }
	}
	require.NoError(t, json.Unmarshal(raw, &got), string(raw))
	require.Greater(t, len(got.Tests), 20, string(raw))
	for _, test := range got.Tests {
		if passing[test.ID] == "" {
			require.NotEqual(t, "fail", strings.ToLower(test.Status), "%s: %s", test.ID, test.Detail)
		}
	}
}
