//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// packageVersion pins the npm package that provides the rival's libraries: llama.cpp v0.5.0. The
// package's JavaScript is never run.
const packageVersion = "3.22.1"

//go:embed llama/driver.cpp
var driverSource []byte

//go:embed llama/upstream.h
var upstreamHeader []byte

//go:embed llama/logits.cpp
var logitsSource []byte

//go:embed llama/tokens.cpp
var tokensSource []byte

//go:embed llama/blocks.cpp
var blocksSource []byte

// installed is llama.cpp from the npm package, with the driver linked to it.
type installed struct {
	folder    string // that holds all of the following
	libraries string
	backends  string // the folder of libraries, or the file of one backend
	driver    string
}

// backends are llama.cpp's names for smelt's instruction sets; "" lets it choose.
var backends = map[string]string{"": "", "avx512": "", "avxvnni": "alderlake", "avx2": "haswell"}

// platforms are the package's folders of libraries, by GOARCH.
var platforms = map[string]string{"amd64": "linux-x64", "arm64": "linux-arm64"}

// errPeer is wrapped where there is no llama.cpp to compare with.
var errPeer = errors.New(`no llama.cpp to compare with; set LLAMA_BENCH to a llama-bench, or pass --peer none to measure smelt alone`)

// install fetches the package into a folder, unless it is there, and builds the driver for an
// instruction set, or for the best with isa "".
func install(ctx context.Context, folder, isa string, say func(string, ...any)) (*installed, error) {
	platform, ok := platforms[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("%w: node-llama-cpp has no libraries for %s", errPeer, runtime.GOARCH)
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	in := &installed{folder: folder, libraries: filepath.Join(folder, "node_modules/@node-llama-cpp", platform, "bins", platform)}
	if err := in.fetch(ctx, platform, say); err != nil {
		return nil, err
	}
	if err := in.headers(ctx); err != nil {
		return nil, err
	}
	in.backends = in.libraries
	if backend := backends[isa]; backend != "" {
		in.backends = filepath.Join(in.libraries, "libggml-cpu-"+backend+".so")
	}
	in.driver, err = in.build(ctx, "driver", slices.Concat(upstreamHeader, driverSource), say)
	return in, err
}

// fetch installs the package and only the one package of libraries that is needed, because the
// others are optional and large.
func (in *installed) fetch(ctx context.Context, platform string, say func(string, ...any)) error {
	manifest := filepath.Join(in.folder, "node_modules/node-llama-cpp/package.json")
	if version, err := versionIn(manifest); err == nil {
		if version != packageVersion {
			return fmt.Errorf("%s is version %s, not %s: remove the folder, or name another with --dir", manifest, version, packageVersion)
		}
		if exists(in.libraries) {
			return nil
		}
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("%w: npm is needed to fetch node-llama-cpp (Debian: apt-get install npm)", errPeer)
	}
	if err := os.MkdirAll(in.folder, 0o755); err != nil {
		return err
	}
	say("fetching node-llama-cpp %s into %s", packageVersion, in.folder)
	if err := command(ctx, "npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--no-package-lock",
		"--prefix", in.folder, "node-llama-cpp@"+packageVersion, "@node-llama-cpp/"+platform+"@"+packageVersion); err != nil {
		return fmt.Errorf("%w: %w", errPeer, err)
	}
	if !exists(in.libraries) {
		return fmt.Errorf("%w: npm did not install %s", errPeer, in.libraries)
	}
	return nil
}

func versionIn(manifest string) (string, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return "", err
	}
	var m struct{ Version string }
	return m.Version, json.Unmarshal(text, &m)
}

// headers unpacks llama.cpp's sources, which the package contains as a git bundle.
func (in *installed) headers(ctx context.Context) error {
	source := filepath.Join(in.folder, "src")
	if exists(filepath.Join(source, "include/llama.h")) {
		return nil
	}
	part := source + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	bundle := filepath.Join(in.folder, "node_modules/node-llama-cpp/llama/gitRelease.bundle")
	if err := command(ctx, "git", "clone", "-q", bundle, part); err != nil {
		return fmt.Errorf("%w: unpacking llama.cpp's headers: %w", errPeer, err)
	}
	return os.Rename(part, source)
}

// build compiles a program that is linked to llama.cpp. The program's name contains a hash of
// its source and flags, so that a stale one is never run.
func (in *installed) build(ctx context.Context, name string, text []byte, say func(string, ...any)) (program string, err error) {
	// Relative to the driver, so that the folder may be moved.
	libs, err := filepath.Rel(in.folder, in.libraries)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPeer, err)
	}
	flags := []string{"-O2", "-std=c++17", "-Wl,-rpath,$ORIGIN/" + libs}
	key := sha256.Sum256(append([]byte(strings.Join(flags, " ")+"\n"), text...))
	program = filepath.Join(in.folder, fmt.Sprintf("%s-%x", name, key[:6]))
	if exists(program) {
		return program, nil
	}
	libraries := []string{}
	for _, name := range []string{"llama", "ggml", "ggml-base"} {
		file, err := in.library(name)
		if err != nil {
			return "", err
		}
		libraries = append(libraries, file)
	}
	say("compiling %s, linked to llama.cpp", name)
	source := program + ".cpp"
	if err := os.WriteFile(source, text, 0o644); err != nil {
		return "", err
	}
	src := filepath.Join(in.folder, "src")
	args := slices.Concat(flags, []string{"-I", filepath.Join(src, "include"), "-I", filepath.Join(src, "ggml/include"), source,
		"-o", program + ".part"}, libraries)
	if err := compile(ctx, args); err != nil {
		return "", fmt.Errorf("%w: %w", errPeer, err)
	}
	return program, os.Rename(program+".part", program)
}

func compile(ctx context.Context, args []string) error {
	return command(ctx, cmp.Or(os.Getenv("CXX"), "g++"), args...)
}

// library returns the path of a library by its name, whose file may contain a version:
// libllama.so or libllama.v0.5.0.so.
func (in *installed) library(name string) (string, error) {
	form := regexp.MustCompile(`^lib` + regexp.QuoteMeta(name) + `(\.v[0-9.]+)?\.so$`)
	entries, err := os.ReadDir(in.libraries)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPeer, err)
	}
	for _, e := range entries {
		if form.MatchString(e.Name()) {
			return filepath.Join(in.libraries, e.Name()), nil
		}
	}
	return "", fmt.Errorf("%w: %s has no lib%s", errPeer, in.libraries, name)
}

// start loads a model. state is the prefix of the files that keep filled caches, or "".
func (in *installed) start(ctx context.Context, model string, threads, slots int, state string, mapped bool) (engine, error) {
	weights := "read"
	if mapped {
		weights = "mapped"
	}
	cmd := exec.CommandContext(ctx, in.driver, model, strconv.Itoa(threads), strconv.Itoa(slots), in.backends, state, weights)
	c, err := start(cmd)
	if err != nil {
		return nil, err
	}
	c.first.Detail = backendOf(cmd.Process.Pid)
	c.first.Version += ", node-llama-cpp " + packageVersion
	return c, nil
}

var backendForm = regexp.MustCompile(`libggml-cpu-(\w+)\.so`)

// backendOf returns the kernel set that llama.cpp chose for this processor: the one mapped by
// its process.
func backendOf(pid int) string {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return ""
	}
	if found := backendForm.FindSubmatch(maps); found != nil {
		return string(found[1])
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command runs a program and returns an error with the end of its output.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	said := &lastWords{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, said)
	}
	return nil
}
