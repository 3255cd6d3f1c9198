// Package graphviz lays out graphs with Graphviz compiled to WebAssembly, so that users need not
// install it. The module is unpacked and run only when a graph is rendered.
//
//	svg, err := graphviz.Render(ctx, dot, "svg")
//
// The module is that of @viz-js/viz on npm; see NOTICE. It has no access to files, clock and
// environment, so equal graphs give equal bytes. "go generate" rebuilds the module from the
// package, whose version and checksum are in fetch.go.
package graphviz

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

//go:generate go run fetch.go

//go:embed graphviz.wasm.gz
var packed []byte

// ErrGraph is wrapped where Graphviz rejects a graph.
var ErrGraph = errors.New("graphviz rejects the graph")

// The module's exports, by the names that its linker assigned.
const (
	construct     = "A" // runs the constructors of C's globals
	allocate      = "F" // (bytes) → address
	readGraph     = "I" // (text) → graph, or 0
	createContext = "V" // () → context
	layOut        = "X" // (context, graph, name of the engine) → 0, or an error
	write         = "_" // (context, graph, name of the format) → text, or 0
)

// Render lays out a graph in DOT with the engine dot and returns it in one of Graphviz's formats,
// such as "svg" or "plain". When ctx ends it returns ctx's error; the layout of a large graph can
// then keep running in the background until it is done.
func Render(ctx context.Context, dot []byte, format string) ([]byte, error) {
	type answer struct {
		out []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		out, err := renderHere(ctx, dot, format)
		done <- answer{out, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-done:
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return a.out, a.err
	}
}

func renderHere(ctx context.Context, dot []byte, format string) ([]byte, error) {
	m := &module{ctx: ctx, runtime: wazero.NewRuntimeWithConfig(ctx, config(dot))}
	defer m.close()
	if err := m.instantiate(); err != nil {
		return nil, fmt.Errorf("starting graphviz: %w", err)
	}
	return m.render(dot, format)
}

// largeGraph is the size in bytes from which a graph is laid out by compiled code. Compiling the
// module takes half a second and makes the layout several times faster.
const largeGraph = 16 << 10

// config selects the interpreter or the compiler. Only the interpreter checks whether ctx has
// ended; the check would more than double the time of compiled code.
func config(dot []byte) wazero.RuntimeConfig {
	if len(dot) < largeGraph {
		return wazero.NewRuntimeConfigInterpreter().WithCloseOnContextDone(true)
	}
	return wazero.NewRuntimeConfig().WithCompilationCache(compiled)
}

// compiled caches the module's machine code for further large graphs: a page has three.
var compiled = wazero.NewCompilationCache()

// module is a running Graphviz. Its functions allocate memory that is freed with it.
type module struct {
	ctx      context.Context
	runtime  wazero.Runtime
	instance api.Module
	said     strings.Builder // error messages
}

func (m *module) instantiate() error {
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	code, err := io.ReadAll(unpack)
	if err != nil {
		return err
	}
	host := m.runtime.NewHostModuleBuilder("a")
	for _, f := range m.imports() {
		host.NewFunctionBuilder().WithName(f.is).
			WithGoModuleFunction(api.GoModuleFunc(f.export), types(f.params), types(f.results)).Export(f.name)
	}
	if _, err := host.Instantiate(m.ctx); err != nil {
		return err
	}
	ready, err := m.runtime.CompileModule(m.ctx, code) // not closed, since that would remove it from the cache
	if err != nil {
		return err
	}
	if m.instance, err = m.runtime.InstantiateModule(m.ctx, ready, wazero.NewModuleConfig()); err != nil {
		return err
	}
	_, err = m.call(construct)
	return err
}

func (m *module) close() { _ = m.runtime.Close(context.WithoutCancel(m.ctx)) }

func (m *module) render(dot []byte, format string) ([]byte, error) {
	var args [3]uint64 // the graph, the engine, the format
	for i, s := range [][]byte{dot, []byte("dot"), []byte(format)} {
		if bytes.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("%w: it contains a zero byte", ErrGraph)
		}
		at, err := m.call(allocate, uint64(len(s)+1))
		if err != nil {
			return nil, err
		}
		if !m.instance.Memory().Write(uint32(at), append(bytes.Clone(s), 0)) {
			return nil, fmt.Errorf("%w: %d bytes exceed its memory", ErrGraph, len(s))
		}
		args[i] = at
	}
	graph, err := m.call(readGraph, args[0])
	if err != nil || graph == 0 {
		return nil, m.refused(err)
	}
	job, err := m.call(createContext)
	if err != nil {
		return nil, err
	}
	if failed, err := m.call(layOut, job, graph, args[1]); err != nil || failed != 0 {
		return nil, m.refused(err)
	}
	result, err := m.call(write, job, graph, args[2])
	if err != nil || result == 0 {
		return nil, m.refused(err)
	}
	return text(m.instance.Memory(), uint32(result)), nil
}

func (m *module) call(name string, args ...uint64) (uint64, error) {
	results, err := m.instance.ExportedFunction(name).Call(m.ctx, args...)
	if err != nil || len(results) == 0 {
		return 0, err
	}
	return results[0], nil
}

// refused returns the reason why a graph was not laid out: a trap, or Graphviz's error messages.
func (m *module) refused(trap error) error {
	why := strings.Join(strings.Fields(m.said.String()), " ")
	if trap != nil {
		return fmt.Errorf("%w: %s %w", ErrGraph, why, trap)
	}
	return fmt.Errorf("%w: %s", ErrGraph, why)
}
