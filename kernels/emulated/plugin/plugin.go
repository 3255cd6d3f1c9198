//go:build cgo && (linux || darwin)

// Package plugin opens emulated kernels from a shared library: a kernel under development, or
// one with a deliberate fault, without a rebuild of package emulated.
package plugin

import (
	"fmt"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
)

// Symbol is the value of the macro MSL_LIBRARY with which the shared library must be built.
const Symbol = "smelt_plugin"

// Open loads the shared library at a path, which is never unloaded.
func Open(path string) (emulated.Library, error) {
	table, err := host.Load(path, Symbol)
	if err != nil {
		return emulated.Library{}, fmt.Errorf("plugin: %w; is it built with %s as MSL_LIBRARY?", err, Symbol)
	}
	return host.Open(table), nil
}
