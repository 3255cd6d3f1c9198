package serve_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/serve"
)

var update = flag.Bool("update", false, "write the table of endpoints into docs/serve.md")

// Documents list what is served.
func TestEndpointsDocumented(t *testing.T) {
	const file, begin, end = "../docs/serve.md", " -update -->\n", "<!-- end -->"
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	listed, after, found := strings.Cut(rest, end)
	require.True(t, found)
	var table strings.Builder
	table.WriteString("| | |\n|---|---|\n")
	for _, e := range serve.Endpoints() {
		require.NotEmpty(t, e.Doc, e.Path)
		fmt.Fprintf(&table, "| `%s %s` | %s |\n", e.Method, e.Shown(), strings.ReplaceAll(e.Doc, "|", "\\|"))
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, table.String(), listed)
}

// Each endpoint is served, by its method alone, and asks for a key unless its row says otherwise.
func TestEndpointsServed(t *testing.T) {
	s := newServed(t, serve.Options{Keys: []string{"key"}, Page: true}, 1)
	keyless := map[string]bool{"/health": true, "/ready": true, "/": true, "/page/{file}": true}
	for _, e := range serve.Endpoints() {
		path := strings.NewReplacer("{model}", name, "{file}", "main.js").Replace(e.Shown())
		s.key = ""
		answer, _ := s.do(e.Method, path, "{}")
		require.Equal(t, keyless[e.Shown()], answer.StatusCode != http.StatusUnauthorized, path)
		s.key = "key"
		answer, _ = s.do(e.Method, path, "{}")
		require.NotContains(t, []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusMethodNotAllowed}, answer.StatusCode, path)
		answer, _ = s.do(http.MethodDelete, path, "")
		require.Equal(t, http.StatusNotFound, answer.StatusCode, path)
	}
}
