package compile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// library returns a library with a part that returns a text, and a part that libraries share.
func library(name, text string) Library {
	files := map[string][]byte{
		"include/text.h": []byte("extern \"C\" const char *text(void);\n"),
		"src/own.cc":     []byte("#include \"../include/text.h\"\nconst char *text(void) { return TEXT; }\n"),
		"src/shared.c":   []byte("const char *text(void);\nint restrict_is_a_name_in_cc(char *restrict p) { return *p; }\nconst void *entry(void) { return text(); }\n"),
	}
	return Library{Name: name, Parts: []Part{
		{File: "src/own.cc", Files: files, Flags: []string{"-std=c++17", "-DTEXT=\"" + text + "\""}},
		{File: "src/shared.c", Files: files, Flags: []string{"-O1"}, Shared: true},
	}}
}

func inCache(t *testing.T) (list func() []string) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // on macOS the cache is below it
	dir, err := cacheFolder()
	require.NoError(t, err)
	return func() []string {
		all, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		return all
	}
}

// load returns the text of the loaded library and whether it was compiled.
func load(t *testing.T, l Library) (string, bool) {
	compiled := false
	p, err := l.Load(t.Context(), "entry", func() { compiled = true })
	require.NoError(t, err)
	return text(p), compiled
}

func TestLibrariesAreKept(t *testing.T) {
	list := inCache(t)
	for _, compiles := range []bool{true, false} {
		got, compiled := load(t, library("one", "first"))
		require.Equal(t, "first", got)
		require.Equal(t, compiles, compiled)
	}
	shared := ofExt(list(), ".o")
	require.Len(t, shared, 1)
	got, compiled := load(t, library("two", "other"))
	require.Equal(t, "other", got)
	require.True(t, compiled)
	require.Equal(t, shared, ofExt(list(), ".o"))
	require.Len(t, list(), 3, "nothing else stays behind")
}

func ofExt(files []string, ext string) (out []string) {
	for _, f := range files {
		if filepath.Ext(f) == ext {
			out = append(out, f)
		}
	}
	return out
}

// A change of a file, a flag or the compiler compiles the library again.
func TestChangesCompileAnew(t *testing.T) {
	inCache(t)
	_, compiled := load(t, library("one", "first"))
	require.True(t, compiled)
	flags := library("one", "first")
	flags.Parts[1].Flags = []string{"-O2"}
	_, compiled = load(t, flags)
	require.True(t, compiled, "flags")
	header := library("one", "first")
	header.Parts[0].Files["include/text.h"] = append(header.Parts[0].Files["include/text.h"], '\n')
	_, compiled = load(t, header)
	require.True(t, compiled, "a header")

	c, err := findCompiler(t.Context())
	require.NoError(t, err)
	wrapper := filepath.Join(t.TempDir(), "other++")
	require.NoError(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+strings.Join(c.command, " ")+" \"$@\"\n"), 0o755))
	t.Setenv("CXX", wrapper)
	_, compiled = load(t, library("one", "first"))
	require.True(t, compiled, "another compiler")
}

// A truncated library would crash the process that loads it; it is rebuilt instead.
func TestTornFilesAreMadeAnew(t *testing.T) {
	list := inCache(t)
	load(t, library("one", "torn"))
	before := list()
	for _, f := range before {
		info, err := os.Stat(f)
		require.NoError(t, err)
		// The library with this name is loaded already, so the test truncates a copy.
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NoError(t, os.Remove(f))
		require.NoError(t, os.WriteFile(f, b[:info.Size()/2], 0o644))
	}
	got, compiled := load(t, library("one", "torn"))
	require.Equal(t, "torn", got)
	require.True(t, compiled)
	require.Equal(t, ofExt(before, ".o"), ofExt(list(), ".o"))
	require.Len(t, list(), len(before))
}

// Without a writable home everything works uncached.
func TestNowhereToKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for name, home := range map[string]string{"unset": "", "not there": filepath.Join(t.TempDir(), "none"), "no folder": file} {
		t.Run(name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			t.Setenv("XDG_CACHE_HOME", "")
			t.Setenv("HOME", home)
			got, compiled := load(t, library("one", name))
			require.Equal(t, name, got)
			require.True(t, compiled)
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			require.Empty(t, left)
			require.NoDirExists(t, filepath.Join(home, ".cache"))
		})
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	list := inCache(t)
	l := library("one", "wrong")
	l.Parts[0].Files["src/own.cc"] = []byte("#include \"../include/text.h\"\nnonsense;\nmore;\n")
	_, err := l.Load(t.Context(), "entry", nil)
	require.ErrorContains(t, err, "compiling one: ")
	require.ErrorContains(t, err, "own.cc:2")
	require.ErrorContains(t, err, "error: ")
	require.NotContains(t, err.Error(), "\n")
	for _, f := range list() {
		require.Equal(t, ".o", filepath.Ext(f), "what failed is not kept")
	}

	_, err = library("one", "fine").Load(t.Context(), "no_entry", nil)
	require.ErrorContains(t, err, "no_entry")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = library("one", "cancelled").Load(ctx, "entry", nil)
	require.ErrorIs(t, err, context.Canceled)

	t.Setenv("CXX", "no-such-compiler")
	_, err = l.Load(t.Context(), "entry", nil)
	require.ErrorIs(t, err, ErrNoCompiler)
	require.EqualError(t, err, "no C++ compiler: no-such-compiler is not to be found (CXX names another)")
}

func text(p unsafe.Pointer) string {
	b := (*[64]byte)(p)
	n := 0
	for b[n] != 0 {
		n++
	}
	return string(b[:n])
}
