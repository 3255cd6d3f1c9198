// Command swaps shows that where a kernel takes its arguments, function constants and
// parameters is known in the kernel table and the sources, and nowhere else. It copies the
// module, and in the copy exchanges two of each: in every list of the table the first
// buffer's number with the last one's, likewise of function constants, and the first two
// fields of every parameter struct. The sources follow the table; then tests are run that
// know nothing of it.
//
//	go run ./kernels/internal/swaps [-run TESTS] [package …]
//
// The packages default to those that launch kernels or make Plans of them.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// suites are the tests that run kernels, or bind what kernels take: packages, and which of
// their tests, all where none is named.
var suites = [][]string{
	{"", "./kernels", "./kernels/internal/arguments", "./kernels/native", "./lower", "./metal", "./internal/profile"},
	{"^(TestBindingsMatchKernels|TestLogits)$/.*/.*/(emu|cpu)", "."},
}

func main() {
	keep := flag.String("keep", "", "make the copy in this folder, and leave it there")
	run := flag.String("run", "", "which tests of the packages that are named")
	flag.Parse()
	chosen := suites
	if flag.NArg() > 0 {
		chosen = [][]string{append([]string{*run}, flag.Args()...)}
	}
	if err := try(*keep, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "swaps:", err)
		os.Exit(1)
	}
}

// try runs suites in a copy whose emulated and native kernels are compiled anew.
func try(keep string, suites [][]string) error {
	dir := keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "swaps"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	c, err := newCopy(dir)
	if err != nil {
		return err
	}
	if err := c.command("go", "generate", "./kernels/..."); err != nil {
		return err
	}
	if err := c.command("go", "test", "./kernels/native", "-run", "^TestStamp$", "-update"); err != nil {
		return err
	}
	for _, suite := range suites {
		if err := c.command("go", append([]string{"test", "-timeout", "30m", "-run"}, suite...)...); err != nil {
			return err
		}
	}
	return nil
}

// moduleCopy is the module with its kernels' arguments exchanged.
type moduleCopy struct{ dir string }

// newCopy makes the copy in a folder, with the sources and the header changed and nothing
// else generated.
func newCopy(dir string) (*moduleCopy, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	if err := copyModule(strings.TrimSpace(string(root)), dir); err != nil {
		return nil, err
	}
	c := &moduleCopy{dir}
	constants, err := swapTable(filepath.Join(dir, "kernels"))
	if err != nil {
		return nil, err
	}
	if err := swapParams(filepath.Join(dir, "kernels")); err != nil {
		return nil, err
	}
	header := filepath.Join("kernels", "arguments.gen.h")
	if err := c.command("go", "run", "./kernels/internal/arguments", header); err != nil {
		return nil, err
	}
	return c, followTable(filepath.Join(dir, "kernels"), constants)
}

// command runs a command in the copy.
func (c *moduleCopy) command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "PWD="+c.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	fmt.Fprint(os.Stderr, string(out))
	return nil
}

// copyModule copies all but what git and make keep beside the sources.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			switch rel {
			case ".git", "bin", "build":
				return filepath.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		}
		if !entry.Type().IsRegular() || rel == ".git" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}
