//go:build cgo && ((darwin && arm64) || (fakemetal && linux))

package metal

/*
#cgo fakemetal CFLAGS: -std=gnu17 -Iinternal/fakemetal/include
#cgo darwin CFLAGS: -mmacosx-version-min=14.0
#cgo darwin LDFLAGS: -framework Metal -framework Foundation
#include <stdlib.h>
#include "device.h"

const smelt_provider *smelt_apple_provider(void);
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/native"
)

// answerWithin is how long a command buffer may take unless told otherwise. The
// system's own watchdog is quicker.
const answerWithin = time.Minute

// apple is the driver of a GPU, and the texts that C keeps of its options.
type apple struct {
	*provided
	texts []*C.char
}

func newAppleDriver(opts Options, from suppliers) (driver, error) {
	emulator, simd := from()
	if err := opts.fromEnvironment(); err != nil {
		return nil, err
	}
	o := options(opts, true, emulator, simd)
	if library, ok := native.BLAS(); ok && !opts.NoBLAS {
		o.blas = (*C.smelt_native)(library.Provider())
	}
	m := metalSources()
	o.sources, o.source_count = &m.files[0], C.uint32_t(len(m.files))
	o.functions, o.function_count = &m.functions[0], C.uint32_t(len(m.functions))
	o.timeout_ms = C.uint32_t(answerWithin.Milliseconds())
	if opts.Timeout > 0 {
		o.timeout_ms = C.uint32_t(opts.Timeout.Milliseconds())
	}
	a := &apple{}
	o.library = a.text(opts.Library)
	o.capture_step, o.capture_path = C.uint32_t(opts.Capture), a.text(opts.CaptureFile)
	p, err := openProvider(C.smelt_apple_provider(), o)
	if err != nil {
		a.forget()
		var e *driverError
		if errors.As(err, &e) && e.code == codeLost {
			return nil, fmt.Errorf("%w: %w", ErrNoMetal, err)
		}
		return nil, err
	}
	a.provided = p
	return a, nil
}

// fromEnvironment fills in what was not asked for: SMELT_METALLIB, a compiled library,
// SMELT_CAPTURE, the number of the step to capture, and SMELT_BLAS=off.
func (o *Options) fromEnvironment() error {
	o.NoBLAS = o.NoBLAS || os.Getenv("SMELT_BLAS") == "off"
	if o.Library == "" {
		o.Library = os.Getenv("SMELT_METALLIB")
	}
	if n := os.Getenv("SMELT_CAPTURE"); n != "" && o.Capture == 0 {
		step, err := strconv.ParseUint(n, 10, 31)
		if err != nil || step == 0 {
			return fmt.Errorf("SMELT_CAPTURE=%s is not the number of a step, counted from 1", n)
		}
		o.Capture, o.CaptureFile = int(step), fmt.Sprintf("smelt-%d.gputrace", step)
	}
	return nil
}

// text returns a string of C's that lives as long as the device; null for "".
func (a *apple) text(s string) *C.char {
	if s == "" {
		return nil
	}
	c := C.CString(s)
	a.texts = append(a.texts, c)
	return c
}

func (a *apple) close() {
	a.provided.close()
	a.forget()
}

func (a *apple) forget() {
	for _, c := range a.texts {
		C.free(unsafe.Pointer(c))
	}
}

// sources are the kernels as Metal's compiler takes them, in memory of C that is
// never freed.
type sources struct {
	files     []C.smelt_source
	functions []C.smelt_function
}

var metalSources = sync.OnceValue(func() sources {
	names := kernels.Files()
	all := kernels.All()
	s := sources{
		files:     unsafe.Slice((*C.smelt_source)(C.calloc(C.size_t(len(names)), C.sizeof_smelt_source)), len(names)),
		functions: unsafe.Slice((*C.smelt_function)(C.calloc(C.size_t(len(all)), C.sizeof_smelt_function)), len(all)),
	}
	at := map[string]C.uint32_t{}
	for i, name := range names {
		at[name] = C.uint32_t(i)
		s.files[i] = C.smelt_source{name: C.CString(name), text: C.CString(kernels.Source(name))}
	}
	for i, k := range all {
		f := C.smelt_function{name: C.CString(k.Name), source: at[k.File], max_threads: C.uint32_t(k.MaxThreads)}
		for _, c := range k.Constants {
			if c.Type == "bool" {
				f.booleans |= 1 << c.Index
			}
		}
		s.functions[i] = f
	}
	return s
})
