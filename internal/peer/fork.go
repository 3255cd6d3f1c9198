//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

//go:embed llama/fork.h
var forkHeader []byte

// forkName is what the fork is called: its kernels for processors are the fastest of llama.cpp's
// descendants.
const forkName = "ik_llama.cpp"

// forked is the fork built from a folder of its sources, with our driver linked to it.
type forked struct {
	driver string
	detail string // the instructions that it was built for
}

// errFork is wrapped where the fork cannot be built.
var errFork = errors.New("no " + forkName + " to compare with; --fork names a folder of its sources")

// buildFork compiles the fork and the driver into a folder, unless they are there.
func buildFork(ctx context.Context, sources, folder, isa string, say func(string, ...any)) (*forked, error) {
	sources, err := filepath.Abs(sources)
	if err != nil {
		return nil, err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	for _, needed := range []string{"CMakeLists.txt", "include/llama.h", "ggml/src/iqk"} {
		if !exists(filepath.Join(sources, needed)) {
			return nil, fmt.Errorf("%w: %s has no %s", errFork, sources, needed)
		}
	}
	version := "of an unknown commit"
	if exists(filepath.Join(sources, ".git")) {
		out, err := exec.CommandContext(ctx, "git", "-C", sources, "rev-parse", "--short", "HEAD").Output()
		if err != nil {
			return nil, fmt.Errorf("%w: git rev-parse in %s: %w", errFork, sources, err)
		}
		version = strings.TrimSpace(string(out))
	}
	set := instructionSets[isa]
	options := append([]string{
		"-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
		"-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_CURL=OFF", "-DGGML_CCACHE=OFF",
		"-DGGML_IQK_FA_ALL_QUANTS=OFF", // the caches that are compared hold F16
	}, set.fork...)
	name := "native"
	if isa != "" {
		name = isa
	}
	text := slices.Concat(fmt.Appendf(nil, "#define FORK_VERSION %q\n", version), forkHeader, driverSource)
	build := filepath.Join(folder, "fork-"+name)
	key := sha256.Sum256(slices.Concat(text, []byte(sources+strings.Join(options, " "))))
	f := &forked{driver: filepath.Join(build, fmt.Sprintf("driver-%x", key[:6])), detail: name}
	if exists(f.driver) {
		return f, nil
	}
	say("building %s (%s) for %s in %s, which takes minutes", forkName, version, name, build)
	if err := command(ctx, "cmake", append([]string{"-S", sources, "-B", build}, options...)...); err != nil {
		return nil, fmt.Errorf("%w: %w", errFork, err)
	}
	if err := command(ctx, "cmake", "--build", build, "--target", "llama", "-j", strconv.Itoa(runtime.NumCPU())); err != nil {
		return nil, fmt.Errorf("%w: %w", errFork, err)
	}
	source := f.driver + ".cpp"
	if err := os.WriteFile(source, text, 0o644); err != nil {
		return nil, err
	}
	args := []string{"-O2", "-std=c++17", "-I", filepath.Join(sources, "include"), "-I", filepath.Join(sources, "ggml/include"), source, "-o", f.driver + ".part"}
	for _, library := range []string{"src/libllama.so", "ggml/src/libggml.so"} {
		args = append(args, filepath.Join(build, library), "-Wl,-rpath,"+filepath.Dir(filepath.Join(build, library)))
	}
	if err := compile(ctx, args); err != nil {
		return nil, fmt.Errorf("%w: %w", errFork, err)
	}
	return f, os.Rename(f.driver+".part", f.driver)
}

// The ways in which the fork holds weights: as the file has them, or repacked for the processor.
// Which is the faster differs from cell to cell.
var forkWays = []string{"read", "repacked"}

// start loads a model in each way. A way that the fork has no kernels for ends the comparison.
func (f *forked) start(ctx context.Context, model string, threads, slots int, state string) (*ways, error) {
	if state != "" {
		state = strings.TrimSuffix(state, ".state") + ".fork.state"
	}
	w := &ways{}
	for _, way := range forkWays {
		c, err := start(exec.CommandContext(ctx, f.driver, model, strconv.Itoa(threads), strconv.Itoa(slots), "", state, way))
		if err != nil {
			w.close()
			return nil, fmt.Errorf("%s, weights %s: %w", forkName, way, err)
		}
		c.first.Detail = f.detail
		w.engines = append(w.engines, c)
	}
	return w, nil
}

// ways is one rival loaded in several ways, of which one answers.
type ways struct {
	engines []engine
	taken   int
}

func (w *ways) hello() hello                              { return w.engines[0].hello() }
func (w *ways) fill(ctx context.Context, depth int) error { return w.engines[w.taken].fill(ctx, depth) }
func (w *ways) peak(ctx context.Context) (int64, error)   { return w.engines[w.taken].peak(ctx) }
func (w *ways) choices() int                              { return len(w.engines) }
func (w *ways) take(_ context.Context, choice int) error  { w.taken = choice; return nil }

func (w *ways) sample(ctx context.Context, c cell) (answer, error) {
	return w.engines[w.taken].sample(ctx, c)
}

func (w *ways) close() {
	for _, e := range w.engines {
		e.close()
	}
}
