// Package compile builds shared libraries on demand with the C++ compiler of the machine,
// and caches them in the user's cache folder.
//
//	table, err := compile.Library{Name: "linear_vec", Parts: []compile.Part{
//		{File: "linear_vec.gen.cc", Files: files, Flags: []string{"-std=c++17", "-O1"}},
//		{File: "runtime.cc", Files: files, Flags: []string{"-std=c++17", "-O1"}, Shared: true},
//	}}.Load(ctx, "smelt_counted_kernels", nil)
//
// The name of a cached file is a hash of all its inputs: files, flags, the compiler's path
// and version. It also has a hash of the contents, so a truncated or overwritten file is
// detected and rebuilt. Files are renamed into place, so any number of processes may share
// the folder. Without a writable cache folder, a temporary folder is used.
package compile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
)

// Library describes a shared library by its parts.
type Library struct {
	Name  string
	Parts []Part
}

// Part is a source file that is compiled on its own.
type Part struct {
	File   string            // one of Files; ends in .cc or .c
	Files  map[string][]byte // the source and everything it includes, by slash-separated paths
	Flags  []string
	Shared bool // other libraries have the same part: its object file is cached
}

// ErrNoCompiler is wrapped by the error for a missing C++ compiler.
var ErrNoCompiler = errors.New("no C++ compiler")

// Load loads the library, calls one of its functions and returns the result. It compiles the
// library first if it is not in the cache, and then calls note unless that is nil.
func (l Library) Load(ctx context.Context, function string, note func()) (unsafe.Pointer, error) {
	compiler, err := findCompiler(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := cacheFolder()
	if err != nil {
		if kept, err = os.MkdirTemp("", "smelt-kernels"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(kept) // a loaded library needs no name
	}
	library, err := l.build(ctx, compiler, folder(kept), note)
	if err != nil {
		return nil, fmt.Errorf("compiling %s: %w", l.Name, err)
	}
	return host.Load(library, function)
}

// build returns the path of the library in the folder, compiled if necessary.
func (l Library) build(ctx context.Context, c *compiler, kept folder, note func()) (string, error) {
	var keys []byte
	for _, p := range l.Parts {
		key := p.key(c)
		keys = append(keys, key[:]...)
	}
	return kept.keep(l.Name, ".so", sha256.Sum256(keys), func(to string) error {
		if note != nil {
			note()
		}
		objects, errs := make([]string, len(l.Parts)), make([]error, len(l.Parts))
		var wg sync.WaitGroup
		for i, p := range l.Parts {
			wg.Go(func() {
				objects[i] = fmt.Sprintf("%s.%d.o", to, i)
				if !p.Shared {
					errs[i] = p.compile(ctx, c, objects[i])
					return
				}
				name := strings.TrimSuffix(path.Base(p.File), path.Ext(p.File))
				objects[i], errs[i] = kept.keep(name, ".o", p.key(c), func(to string) error { return p.compile(ctx, c, to) })
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return c.run(ctx, "", append([]string{"-shared", "-o", to}, objects...)...)
	})
}

// key returns a hash of the part's inputs: parts with the same key have the same object file.
func (p Part) key(c *compiler) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q\n", runtime.GOARCH, c.id, p.File, p.Flags)
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		fmt.Fprintf(h, "%q %d\n", name, len(p.Files[name]))
		h.Write(p.Files[name])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (p Part) compile(ctx context.Context, c *compiler, to string) error {
	dir, err := os.MkdirTemp("", "smelt-kernels")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range p.Files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, text, 0o644); err != nil {
			return err
		}
	}
	args := append(slices.Clone(p.Flags), "-fPIC", "-c", "-o", to)
	if path.Ext(p.File) == ".c" {
		args = append(args, "-x", "c")
	}
	busy <- struct{}{}
	defer func() { <-busy }()
	return c.run(ctx, dir, append(args, p.File)...)
}

// busy is a semaphore that limits the number of concurrent compilers.
var busy = make(chan struct{}, runtime.GOMAXPROCS(0))
