package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/lower"
)

const module = "github.com/smelt-ml/smelt"

// mayImport is the import law: what each room may use of the others, tests aside. A room is a
// folder with all below it, less the rooms named within it; its own parts are always allowed, and
// so are leaves. internal/ holds parts that several rooms share: npy, golden and the like
// are leaves, ref and engine are named here. docs/imports.svg draws what there is.
var mayImport = map[string][]string{
	"":                     {"*"}, // the public API; cmd is excluded below
	"ir":                   {},
	"fusion":               {"ir"},
	"passes":               {"ir", "fusion"},
	"kernels":              {},
	"kernels/published":    {"kernels"},
	"lower":                {"ir", "kernels", "lower/plan", "lower/predict"},
	"lower/predict":        {"ir", "kernels", "lower/plan"},
	"lower/plan":           {"kernels"},
	"device":               {"kernels", "lower/plan"},
	"metal":                {"device", "kernels", "lower/plan"},
	"models":               {"ir", "models/quant"},
	"models/quant":         {},
	"chat":                 {"constrain", "models"},
	"cmd":                  {"*"},
	"constrain":            {},
	"hub":                  {},
	"serve":                {"", "internal/compiler", "internal/graphviz", "internal/openai", "internal/page", "ir", "lower", "lower/predict"},
	"internal/batch":       {"ir"},
	"internal/ref":         {"ir", "models/quant"},
	"internal/cacheevents": {""},
	"internal/compiler":    {"device", "internal/engine", "internal/picture", "ir", "kernels", "lower", "lower/plan", "lower/predict", "models", "passes"},
	"internal/perplexity":  {""},
	"internal/engine":      {"constrain", "device", "internal/batch", "ir", "lower/plan", "models"},
	"internal/fixture":     {"", "device", "internal/compiler", "internal/testfiles", "internal/tools", "models"},
	"internal/openai":      {"", "chat", "constrain", "internal/stops", "models"},
	"internal/picture":     {"ir", "lower/plan"},
	"internal/page":        {"internal/picture", "ir", "kernels", "lower", "lower/plan", "lower/predict", "passes"},
	"internal/parallel":    {"", "internal/compiler"},
	"internal/profile":     {"internal/batch", "ir", "kernels", "lower", "lower/plan", "lower/predict"},
	"internal/tools":       {"*"}, // what only developers run
	"internal/stops":       {"models"},
	"internal/tune":        {"", "device", "internal/batch", "internal/compiler", "internal/engine", "lower", "lower/plan"},
	"internal/tiny":        {"internal/testfiles", "ir", "models", "models/quant"},
	"internal/vocabs":      {"models"},
	"internal/verify":      {"", "device", "internal/batch", "internal/compare", "internal/compiler", "internal/engine", "internal/ref", "ir", "lower", "lower/plan", "models/quant", "passes"},
}

// leaves are rooms that every room may import.
var leaves = []string{"ir/dtype", "ir/sym"}

// room returns the room of a package: of those that the law names, the one with the longest
// path, or else its first folder, below internal/ its second.
func room(pkg string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
	for at := path; at != "."; at = filepath.Dir(at) {
		if _, named := mayImport[at]; named || slices.Contains(leaves, at) {
			return at
		}
	}
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func TestImportLaw(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"/...").CombinedOutput()
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
			allowed := slices.Contains(leaves, to)
			for _, a := range mayImport[from] {
				allowed = allowed || a == "*" || a == to
			}
			require.True(t, allowed, "%s must not import %s", fields[0], dep)
		}
	}
}

// TestFilesOfAnOp holds the page that shows how an op is added to the files that it names:
// eight at most, fourteen with parameters of its own, and each knows the example.
func TestFilesOfAnOp(t *testing.T) {
	page, err := os.ReadFile(testfiles.Path(t, "docs/guides/add-an-op.md"))
	require.NoError(t, err)
	for _, example := range []struct {
		heading, name string
		most          int
	}{
		{"# Add an op\n", "soft_cap|SoftCap", 8},
		{"## An op with parameters of its own\n", "router|Router", 14},
	} {
		_, section, found := strings.Cut(string(page), example.heading)
		require.True(t, found, example.heading)
		section, _, _ = strings.Cut(section, "\n## ")
		files := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1)
		require.NotEmpty(t, files)
		require.LessOrEqual(t, len(files), example.most)
		for _, f := range files {
			text, err := os.ReadFile(testfiles.Path(t, f[1]))
			require.NoError(t, err)
			require.Regexp(t, example.name, string(text), f[1])
		}
	}
}

// TestTargetsAreTables: what a target is like stands in its table, and nothing asks for its
// name. Devices have names like those of targets, and may be asked for theirs.
func TestTargetsAreTables(t *testing.T) {
	found, err := targetsByName(os.DirFS(testfiles.Root(t)))
	require.NoError(t, err)
	require.Empty(t, found)

	for expr, want := range map[string]bool{
		`t.Name == "cpu"`: true, `"metal" != p.Plan.Target`: true, `target == "cpu"`: true,
		`device == "cpu"`: false, `t.Name == "x"`: false, `t.GPU`: false,
	} {
		e, err := parser.ParseExpr(expr)
		require.NoError(t, err)
		require.Equal(t, want, len(comparisons(e)) > 0, expr)
	}
}

// targetsByName lists where a target is told by its name, but in tests.
func targetsByName(root fs.FS) (found []string, err error) {
	fset := token.NewFileSet()
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, at := range comparisons(file) {
			found = append(found, fmt.Sprint(fset.Position(at)))
		}
		return nil
	})
	return found, err
}

// comparisons returns where in a tree something called a target, or the Name of anything,
// is compared with the name of a target.
func comparisons(tree ast.Node) (found []token.Pos) {
	compared := func(a, b ast.Expr) {
		if isTarget(a) && isTargetName(b) || isTarget(b) && isTargetName(a) {
			found = append(found, a.Pos())
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				compared(n.X, n.Y)
			}
		case *ast.SwitchStmt:
			for _, s := range n.Body.List {
				for _, e := range s.(*ast.CaseClause).List {
					compared(n.Tag, e)
				}
			}
		}
		return true
	})
	return found
}

func isTarget(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "Name" || strings.EqualFold(e.Sel.Name, "target")
	case *ast.Ident:
		return strings.EqualFold(e.Name, "target")
	}
	return false
}

func isTargetName(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return false
	}
	name, err := strconv.Unquote(l.Value)
	return err == nil && slices.Contains(lower.Targets(), name)
}
