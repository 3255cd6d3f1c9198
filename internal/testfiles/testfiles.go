// Package testfiles finds the files that tests read: models kept in the repository under
// testdata/, and third-party reference data in a folder named shared beside the checkout, which
// not every machine has. A test that needs a file of the second kind is skipped where it is
// absent; a file of the first kind is always present.
//
// Some tests would take minutes for their full range. They run a slice of it that shows the same
// faults, unless [Full] asks for all of it. Others measure what only the processor itself can
// show, and skip that where [UnderQEMU] is true.
package testfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Root returns the module's root: the nearest folder above with a go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = parent
	}
}

// Path returns the path of a file of the repository, such as "docs/kernels.md".
func Path(t testing.TB, path string) string {
	t.Helper()
	full := filepath.Join(Root(t), filepath.FromSlash(path))
	if _, err := os.Stat(full); err != nil {
		t.Fatal(err)
	}
	return full
}

// Model returns the path of a file of the small trained models that the repository keeps, such
// as "tiny-qwen3/gguf/tiny-qwen3-F16.gguf". Package tiny makes their other formats.
func Model(t testing.TB, path string) string {
	t.Helper()
	return Path(t, "testdata/models/"+path)
}

// Data returns the path of a file of the reference data, such as
// "models/stories260K/stories260K.gguf", or skips the test.
func Data(t testing.TB, path string) string {
	t.Helper()
	return Shared(t, "data/"+path)
}

// Shared returns the path of a file in the folder beside the checkout, or skips the
// test.
func Shared(t testing.TB, path string) string {
	t.Helper()
	full := filepath.Join(Root(t), "..", "shared", filepath.FromSlash(path))
	if _, err := os.Stat(full); err != nil {
		t.Skipf("../shared/%s is not at hand", path)
	}
	return full
}

// LlamaCpp returns the path of a folder of llama.cpp's sources, which are no part of the checkout and
// which make parity or make bench-peer fetches, or skips the test.
func LlamaCpp(t testing.TB, path string) string {
	t.Helper()
	full := filepath.Join(Root(t), "build", "peer", "src", filepath.FromSlash(path))
	if _, err := os.Stat(full); err != nil {
		t.Skipf("llama.cpp's %s is not at hand: make parity, or make bench-peer, fetches its sources", path)
	}
	return full
}

// parts are the groups of tests that take long or need what not every machine has.
var parts = []string{
	"models",    // all models, texts and graphs: make whole
	"isa",       // all tests of whole models under each instruction set: make test-isa
	"kernels",   // the whole grid of shapes: make kernels
	"histories", // 100,000 random histories of the cache and the scheduler: make histories
	"barriers",  // each barrier left out in turn: make barriers
	"accuracy",  // perplexity of all types of weights: make accuracy
	"load",      // a server under load for minutes: make load
	"deployed",  // fails where HAProxy, bubblewrap or ZeroMQ is missing: make deployed
	"browser",   // fails where Chromium is missing: make test-page
	"clients",   // fails where clients of npm are missing: make clients
}

// Full reports whether SMELT_FULL, a comma-separated list of parts or "all", asks for a part of
// the tests in full. It panics on an unknown name in the list.
func Full(part string) bool {
	if !slices.Contains(parts, part) {
		panic("tests have no part " + part)
	}
	asked := strings.Split(os.Getenv("SMELT_FULL"), ",")
	for _, name := range asked {
		if name != "" && name != "all" && !slices.Contains(parts, name) {
			panic(fmt.Sprintf("SMELT_FULL: no part of the tests is named %q; there are %s, and all", name, strings.Join(parts, ", ")))
		}
	}
	return slices.Contains(asked, part) || slices.Contains(asked, "all")
}

// Rounds returns whole where SMELT_FULL asks for a part of the tests in full, and slice otherwise.
func Rounds(part string, slice, whole int) int {
	if Full(part) {
		return whole
	}
	return slice
}

// UnderQEMU reports whether qemu-user runs this process, as in make test-arm64. Under qemu times
// are qemu's own, translated code lies in the process's memory, and advice about mappings is
// dropped; of what the system reports about a process only the name is unchanged.
func UnderQEMU() bool {
	name, err := os.ReadFile("/proc/self/comm")
	return err == nil && strings.HasPrefix(string(name), "qemu-")
}
