package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
	"github.com/smelt-ml/smelt/kernels/emulated/plugin"
)

// result is the outcome of a mutant.
type result struct {
	caught bool
	by     string // the failed test and its output
	took   time.Duration
}

// bench holds the files with which mutants are built and tested.
type bench struct {
	root    string // root folder of the module
	dir     string // folder of build outputs
	tests   string // the test binary of package kernels
	runtime string // the compiled runtime of the emulator
}

// limit is the timeout of the tests of one mutant: a fault may cause an endless loop.
const limit = 2 * time.Minute

// try builds each mutant and runs its tests. It returns the error of the first that could not be
// built, or of a source whose tests fail without a fault.
func try(list []mutant, jobs int) ([]result, error) {
	b, err := newBench()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)

	// Each source without a fault, with the tests of all its mutants.
	var sound []mutant
	at := map[string]int{}
	for _, m := range list {
		i, ok := at[m.unit]
		if !ok {
			i = len(sound)
			at[m.unit] = i
			sound = append(sound, mutant{unit: m.unit, file: m.source()})
		}
		if !strings.Contains(sound[i].tests, m.tests) {
			sound[i].tests = strings.TrimPrefix(sound[i].tests+"\n"+m.tests, "\n")
		}
	}
	var mu sync.Mutex
	var failures []error
	results := make([]result, len(list))
	each := func(n int, f func(i int) error) error {
		var wg sync.WaitGroup
		next := make(chan int)
		for range max(jobs, 1) {
			wg.Go(func() {
				for i := range next {
					if err := f(i); err != nil {
						mu.Lock()
						failures = append(failures, err)
						mu.Unlock()
					}
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		wg.Wait()
		return errors.Join(failures...)
	}
	err = each(len(sound), func(i int) error {
		library, err := b.build(sound[i], fmt.Sprintf("sound%d", i))
		if err != nil {
			return err
		}
		for tests := range strings.SplitSeq(sound[i].tests, "\n") {
			r, err := b.run(sound[i], library, tests)
			if err != nil {
				return err
			}
			if r.caught {
				return fmt.Errorf("%s fails without a fault: %s", sound[i].file, r.by)
			}
		}
		return os.Remove(library)
	})
	if err != nil {
		return nil, err
	}
	err = each(len(list), func(i int) error {
		began := time.Now()
		library, err := b.build(list[i], fmt.Sprintf("mutant%d", i))
		if err != nil {
			return err
		}
		results[i], err = b.run(list[i], library, list[i].tests)
		results[i].took = time.Since(began)
		if err != nil {
			return err
		}
		return os.Remove(library)
	})
	return results, err
}

func newBench() (*bench, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	b := &bench{root: strings.TrimSpace(string(root))}
	if b.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	b.tests, b.runtime = filepath.Join(b.dir, "kernels.test"), filepath.Join(b.dir, "runtime.o")
	err = b.command("go", "test", "-c", "-o", b.tests, "./kernels")
	if err == nil {
		err = b.compile("-c", filepath.Join(b.root, "kernels/emulated/runtime/runtime.cc"), "-o", b.runtime)
	}
	if err != nil {
		os.RemoveAll(b.dir)
		return nil, err
	}
	return b, nil
}

func (b *bench) command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// compile calls the compiler of the emulated kernels with the flags that affect results, and low
// optimisation, because a mutant takes longer to compile than to run.
func (b *bench) compile(args ...string) error {
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	flags := []string{"-std=c++17", "-O1", "-g0", "-fPIC", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti",
		"-DMSL_VARIANT=plugin", "-DMSL_LIBRARY=" + plugin.Symbol, "-I", filepath.Join(b.root, "kernels/emulated/runtime"), "-I", b.root}
	if runtime.GOARCH == "amd64" && hasF16C() {
		flags = append(flags, "-march=ivybridge", "-mavx2", "-DMSL_HAS_FMA")
	}
	return b.command(compiler, append(flags, args...)...)
}

// hasF16C reports whether this processor has F16C and FMA.
func hasF16C() bool {
	info, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(info, []byte(" avx2 ")) && bytes.Contains(info, []byte(" f16c ")) && bytes.Contains(info, []byte(" fma "))
}

// native reports whether the mutant is of a native kernel.
func (m mutant) native() bool { return strings.HasPrefix(m.unit, "native/") }

// source returns the path in kernels of the file that is compiled.
func (m mutant) source() string {
	if m.native() {
		return m.unit
	}
	return m.unit + ".metal"
}

// spoilt returns the text of the file with the fault.
func (m mutant) spoilt(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s: %s: the text to replace occurs %d times:\n%s", m.file, m.fault, n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// build builds a shared library of the mutant's unit, or for a native one the test binary with
// it in place of the set. A mutant without old text is the unchanged unit.
func (b *bench) build(m mutant, name string) (library string, err error) {
	if m.native() {
		return b.buildNative(m, name)
	}
	read := mslgen.ReadFile(b.root)
	unit, err := mslgen.Parse("kernels/"+m.unit+".metal", func(file string) ([]byte, error) {
		text, err := read(file)
		if err != nil || m.old == "" || file != "kernels/"+m.file {
			return text, err
		}
		return m.spoilt(text)
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	unitFile, tableFile := filepath.Join(dir, "unit.cc"), filepath.Join(dir, "table.cc")
	if err := os.WriteFile(unitFile, unit.CPlusPlus(path.Base(m.unit)+".gen.cc", "msl/metal_stdlib"), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(tableFile, mslgen.Table([]string{path.Base(m.unit)}, "runtime.h"), 0o644); err != nil {
		return "", err
	}
	library = filepath.Join(b.dir, name+".so")
	if err := b.compile("-shared", unitFile, tableFile, b.runtime, "-o", library); err != nil {
		return "", fmt.Errorf("%s: %s: %w", m.file, m.fault, err)
	}
	return library, nil
}

// buildNative compiles the tests of the native kernels with a unit from a copy of the sources
// that has the fault.
func (b *bench) buildNative(m mutant, name string) (tests string, err error) {
	dir := filepath.Join(b.dir, name)
	defer os.RemoveAll(dir)
	var files []string
	for _, pattern := range []string{"*.h", "abi/*.h", "native/src/*.h", filepath.Dir(m.unit) + "/*.h", m.unit} {
		found, err := filepath.Glob(filepath.Join(b.root, "kernels", pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		path, err := filepath.Rel(filepath.Join(b.root, "kernels"), file)
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(file)
		if err == nil && m.old != "" && filepath.ToSlash(path) == m.file {
			text, err = m.spoilt(text)
		}
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
	}
	// An overlay covers the files of packages only, not the headers that they include.
	stub, overlay := filepath.Join(dir, "stub.cpp"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(stub, fmt.Appendf(nil, "#include %q\n", filepath.Join(dir, m.unit)), 0o644); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(b.root, "kernels", m.unit): stub}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return "", err
	}
	tests = filepath.Join(b.dir, name+".test")
	if err := b.command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", tests, "./kernels/native"); err != nil {
		return "", fmt.Errorf("%s: %s: %w", m.file, m.fault, err)
	}
	return tests, nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	message    = regexp.MustCompile(`(?m)^\s*(?:Error:\s+(.*)|(panic: .*|fatal error: .*|SIG[A-Z]+.*))$`)
)

// environment returns this process's environment without variables that would change the tests,
// such as SMELT_FULL, whose whole grid of shapes exceeds the limit.
func environment(own ...string) []string {
	plain := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SMELT_") })
	return append(plain, own...)
}

// run runs tests with the mutant's build in place of its kernels.
func (b *bench) run(m mutant, library, tests string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	binary, dir, env := b.tests, "kernels", environment("SMELT_KERNELS_LIBRARY="+library)
	if m.native() {
		binary, dir, env = library, "kernels/native", environment()
	}
	cmd := exec.CommandContext(ctx, binary, "-test.run", tests, "-test.failfast", "-test.timeout", limit.String())
	cmd.Dir, cmd.Env = filepath.Join(b.root, dir), env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	if bytes.Contains(out, []byte("no tests to run")) {
		return result{}, fmt.Errorf("no test matches %s", tests)
	}
	if err == nil {
		return result{}, nil
	}
	r := result{caught: true}
	if all := failedTest.FindAllSubmatch(out, -1); all != nil {
		r.by = string(all[len(all)-1][1])
	}
	if m := message.FindSubmatch(out); m != nil {
		r.by = strings.TrimSpace(r.by + ": " + string(m[1]) + string(m[2]))
	}
	if r.by == "" {
		return result{}, fmt.Errorf("the tests %s end with %w\n%s", tests, err, out)
	}
	return r, nil
}
