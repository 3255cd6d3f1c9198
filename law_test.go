package smelt_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/smelt-ml/smelt"

// mayImport is the import law: what each room may use of the others, tests
// aside. A room is a folder with all below it; its own parts are always allowed.
// internal/ holds parts that several rooms share: quant, npy, golden and the like
// are leaves, ref and engine are named here. docs/imports.svg draws what there is.
var mayImport = map[string][]string{
	"":                 {"*"}, // the public API; cmd is excluded below
	"ir":               {},
	"fusion":           {"ir"},
	"passes":           {"ir", "fusion"},
	"kernels":          {},
	"lower":            {"ir", "kernels"},
	"metal":            {"internal/half", "kernels", "lower"},
	"models":           {"ir", "internal/quant"},
	"cmd":              {"*"},
	"internal/ref":     {"internal/half", "internal/quant", "ir"},
	"internal/engine":  {"ir", "lower", "metal", "models"},
	"internal/imports": {"internal/graphviz", "ir"},
	"internal/page":    {"ir", "lower"},
	"internal/peer":    {"", "internal/limits", "ir", "kernels", "metal", "models"},
	"internal/profile": {"ir", "kernels", "lower"},
	"internal/quant":   {"internal/half", "ir"},
	"internal/tiny":    {"internal/quant", "internal/testfiles", "ir", "models"},
	"internal/verify":  {"internal/compare", "internal/engine", "internal/quant", "internal/ref", "ir", "lower", "metal", "passes"},
}

func room(pkg string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func TestImportLaw(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := room(fields[0])
		for _, dep := range fields[1:] {
			if dep != module && !strings.HasPrefix(dep, module+"/") {
				continue
			}
			to := room(dep)
			if to == from {
				continue
			}
			require.NotEqual(t, "cmd", to, "%s imports the tool", fields[0])
			allowed := false
			for _, a := range mayImport[from] {
				allowed = allowed || a == "*" || a == to
			}
			require.True(t, allowed, "%s must not import %s", fields[0], dep)
		}
	}
}

// TestFilesOfAnOp holds the page that shows how an op is added to the files that it names:
// there are eight at most, and each knows the example.
func TestFilesOfAnOp(t *testing.T) {
	page, err := os.ReadFile("docs/kernels.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## Adding an op with its kernel")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	files := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1)
	require.NotEmpty(t, files)
	require.LessOrEqual(t, len(files), 8)
	for _, f := range files {
		text, err := os.ReadFile(f[1])
		require.NoError(t, err)
		require.Regexp(t, "soft_cap|SoftCap", string(text), f[1])
	}
}
