//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package device

/*
#include <stdlib.h>
#include "device/provider/device.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/smelt-ml/smelt/device/apple"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/kernels/native"
)

// gpu is the driver of a GPU, and the texts that C keeps of its options.
type gpu struct {
	*provided
	texts []*C.char
}

func newAppleDriver(opts Options, from suppliers) (driver, error) {
	by := apple.Provider()
	if by == nil {
		return nil, errNoBridge
	}
	emulator, simd := from()
	if err := opts.fromEnvironment(); err != nil {
		return nil, err
	}
	o := options(opts, true, emulator, simd)
	o.host = (*C.smelt_host)(host.Half())
	if library, ok := native.BLAS(); ok && !opts.NoBLAS {
		o.blas = (*C.smelt_native)(library.Provider())
	}
	all := apple.Kernels()
	o.sources, o.source_count = (*C.smelt_source)(all.Files), C.uint32_t(all.FileCount)
	o.functions, o.function_count = (*C.smelt_function)(all.Functions), C.uint32_t(all.FunctionCount)
	o.timeout_ms = C.uint32_t(answerWithin.Milliseconds())
	if opts.Timeout > 0 {
		o.timeout_ms = C.uint32_t(opts.Timeout.Milliseconds())
	}
	g := &gpu{}
	o.archives = g.text(archiveFolder(opts.Archives))
	o.library, o.debug = g.text(opts.Library), C.uint32_t(flag(opts.Debug))
	o.capture_path = g.text(opts.CaptureFile)
	if opts.Capture > 0 {
		o.capture_step = C.uint32_t(opts.Capture) + 1 // the trial is a step too
	}
	p, err := openProvider(by, o)
	if err != nil {
		g.forget()
		var e *driverError
		if errors.As(err, &e) && e.code == codeLost {
			return nil, fmt.Errorf("%w: %w", ErrNoMetal, err)
		}
		if e != nil && e.code.sentinel() != nil {
			return nil, fmt.Errorf("%w: %w", e.code.sentinel(), err)
		}
		return nil, err
	}
	g.provided = p
	return g, nil
}

// archiveFolder is the folder of compiled pipelines on this system below one that is given,
// and makes it; "" where nothing is to be kept, or cannot be.
func archiveFolder(below string) string {
	if below == "off" {
		return ""
	}
	folder := filepath.Join(below, apple.SystemBuild())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return ""
	}
	return folder
}

// text returns a string of C's that lives as long as the device; null for "".
func (g *gpu) text(s string) *C.char {
	if s == "" {
		return nil
	}
	c := C.CString(s)
	g.texts = append(g.texts, c)
	return c
}

func (g *gpu) close() {
	g.provided.close()
	g.forget()
}

func (g *gpu) forget() {
	for _, c := range g.texts {
		C.free(unsafe.Pointer(c))
	}
}
