//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package provider

/*
#cgo CFLAGS: -I../.. -O2
#include <stdlib.h>
#include "device/provider/device.h"

// C functions that call through the provider's table, which Go cannot.
static int open_device(const smelt_provider *p, const smelt_device_options *o, smelt_device **d, smelt_error *e) {
    return p->device_open(o, d, e);
}
static void close_device(const smelt_provider *p, smelt_device *d) { p->device_close(d); }
static void device_info(const smelt_provider *p, smelt_device *d, smelt_info *i) { p->device_info(d, i); }
static int create_buffer(const smelt_provider *p, smelt_device *d, uint64_t n, uint32_t purpose, smelt_buffer **b,
                         smelt_error *e) {
    return p->buffer_create(d, n, purpose, b, e);
}
static int wrap_buffer(const smelt_provider *p, smelt_device *d, uintptr_t m, uint64_t n, smelt_buffer **b,
                       smelt_error *e) {
    return p->buffer_wrap(d, (const void *)m, n, b, e);
}
static int slice_buffer(const smelt_provider *p, smelt_buffer *whole, uint64_t at, uint64_t n, smelt_buffer **b,
                        smelt_error *e) {
    return p->buffer_slice(whole, at, n, b, e);
}
static void *buffer_contents(const smelt_provider *p, smelt_buffer *b) { return p->buffer_contents(b); }
static void close_buffer(const smelt_provider *p, smelt_buffer *b) { p->buffer_close(b); }
static uint64_t interleaved_bytes(const smelt_native *n, const smelt_matrix *m) {
    return n == NULL || n->interleaved_bytes == NULL ? 0 : n->interleaved_bytes(m->type, m->columns, m->rows);
}
static int create_executable(const smelt_provider *p, smelt_device *d, const smelt_tables *t, smelt_buffer *const *b,
                          smelt_executable **executable, smelt_error *e) {
    return p->executable_create(d, t, b, executable, e);
}
static void executable_natives(const smelt_provider *p, smelt_executable *executable, uint8_t *n) {
    p->executable_natives(executable, n);
}
static void executable_compiled(const smelt_provider *p, smelt_executable *executable, smelt_compiled *c) {
    p->executable_compiled(executable, c);
}
static void close_executable(const smelt_provider *p, smelt_executable *executable) { p->executable_close(executable); }
static int create_instance(const smelt_provider *p, smelt_executable *executable, smelt_buffer *const *b,
                          const uint64_t *strides, smelt_instance **s, smelt_error *e) {
    return p->instance_create(executable, b, strides, s, e);
}
static void close_instance(const smelt_provider *p, smelt_instance *s) { p->instance_close(s); }
static int run_instance(const smelt_provider *p, smelt_instance *s, const smelt_step *step, smelt_counts *c,
                       smelt_kernel_count *k, uint64_t *ns, smelt_error *e) {
    return p->instance_run(s, step, c, k, ns, e);
}
static void cancel_instance(const smelt_provider *p, smelt_instance *s, uint32_t v) { p->instance_cancel(s, v); }
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/lower/plan"
)

// The structs of Go and of C have the same sizes.
var (
	_ [C.sizeof_smelt_term - unsafe.Sizeof(term{})]struct{}
	_ [unsafe.Sizeof(term{}) - C.sizeof_smelt_term]struct{}
	_ [C.sizeof_smelt_value - unsafe.Sizeof(value{})]struct{}
	_ [unsafe.Sizeof(value{}) - C.sizeof_smelt_value]struct{}
	_ [C.sizeof_smelt_argument - unsafe.Sizeof(argument{})]struct{}
	_ [unsafe.Sizeof(argument{}) - C.sizeof_smelt_argument]struct{}
	_ [C.sizeof_smelt_dispatch - unsafe.Sizeof(dispatch{})]struct{}
	_ [unsafe.Sizeof(dispatch{}) - C.sizeof_smelt_dispatch]struct{}
	_ [C.sizeof_smelt_phase - unsafe.Sizeof(phase{})]struct{}
	_ [unsafe.Sizeof(phase{}) - C.sizeof_smelt_phase]struct{}
	_ [C.sizeof_smelt_matrix - unsafe.Sizeof(device.Matrix{})]struct{}
	_ [unsafe.Sizeof(device.Matrix{}) - C.sizeof_smelt_matrix]struct{}
	_ [C.sizeof_smelt_step - unsafe.Sizeof(device.Command{})]struct{}
	_ [unsafe.Sizeof(device.Command{}) - C.sizeof_smelt_step]struct{}
	_ [C.sizeof_smelt_counts - unsafe.Sizeof(device.Totals{})]struct{}
	_ [unsafe.Sizeof(device.Totals{}) - C.sizeof_smelt_counts]struct{}
	_ [C.sizeof_smelt_kernel_count - unsafe.Sizeof(device.Ran{})]struct{}
	_ [unsafe.Sizeof(device.Ran{}) - C.sizeof_smelt_kernel_count]struct{}
)

// driver is a device of a provider, with the strings of its options that C keeps.
type driver struct {
	by     *C.smelt_provider
	device *C.smelt_device
	native *C.smelt_native
	texts  []*C.char
	failed C.smelt_error // of the running step; a device runs one at a time
}

// Open opens a device of a provider; by is a const smelt_provider*.
func Open(by unsafe.Pointer, o Options) (device.Driver, error) {
	p := &driver{by: (*C.smelt_provider)(by), native: (*C.smelt_native)(o.Native)}
	c := C.smelt_device_options{
		threads:    C.uint32_t(o.Threads),
		use_native: flag(o.UseNative),
		shuffle:    flag(o.Shuffle),
		rearrange:  C.uint32_t(o.Rearrange),
		mapped:     flag(o.Mapped),
		emulation:  C.smelt_emulation{order: C.uint32_t(o.Order), seed: C.uint32_t(o.Seed), poison: flag(o.Poison)},
		emulator:   (*C.smelt_emulator)(o.Emulator),
		native:     p.native,
		blas:       (*C.smelt_native)(o.BLAS),
		host:       (*C.smelt_host)(o.Host),
		sources:    (*C.smelt_source)(o.Sources), source_count: C.uint32_t(o.SourceCount),
		functions: (*C.smelt_function)(o.Functions), function_count: C.uint32_t(o.FunctionCount),
		library: p.text(o.Library), archives: p.text(o.Archives), debug: flag(o.Debug),
		timeout_ms:   C.uint32_t(o.Timeout.Milliseconds()),
		capture_step: C.uint32_t(o.Capture), capture_path: p.text(o.CaptureFile),
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	places := make([]C.smelt_place, len(o.Places))
	for i, at := range o.Places {
		mask := maskOf(at.CPUs)
		places[i] = C.smelt_place{node: C.uint32_t(at.Node), words: C.uint32_t(len(mask)), processors: (*C.ulong)(pinned(&pins, mask))}
	}
	c.places = (*C.smelt_place)(pinned(&pins, places))
	var e C.smelt_error
	if C.open_device(p.by, &c, &p.device, &e) != 0 {
		p.forget()
		return nil, goError(&e)
	}
	return p, nil
}

// text returns a C string that is freed with the device; null for "".
func (p *driver) text(s string) *C.char {
	if s == "" {
		return nil
	}
	c := C.CString(s)
	p.texts = append(p.texts, c)
	return c
}

func (p *driver) forget() {
	for _, c := range p.texts {
		C.free(unsafe.Pointer(c))
	}
}

func flag(b bool) C.uint32_t { return C.uint32_t(bit(b)) }

func goError(e *C.smelt_error) error {
	return &device.DriverError{Code: device.Code(e.code), Dispatch: int(e.dispatch), Argument: int(e.argument), Message: C.GoString(&e.message[0])}
}

func (p *driver) Close() {
	C.close_device(p.by, p.device)
	p.forget()
}

func (p *driver) Info() device.Info {
	var i C.smelt_info
	C.device_info(p.by, p.device, &i)
	return device.Info{
		ISA: C.GoString(&i.isa[0]), GPU: C.GoString(&i.gpu[0]), Family: int(i.family), Cores: int(i.cores), Threads: int(i.threads), Nodes: max(1, int(i.nodes)),
		Threadgroup: int(i.threadgroup_bytes), Page: int(i.page_bytes), Samples: i.samples != 0, HalfIntegers: i.half_integers != 0,
		MaxBuffer: uint64(i.max_buffer_bytes), WorkingSet: uint64(i.working_set_bytes),
	}
}

func (p *driver) Create(bytes int64, use device.Purpose) (device.Handle, error) {
	var b *C.smelt_buffer
	var e C.smelt_error
	if C.create_buffer(p.by, p.device, C.uint64_t(bytes), C.uint32_t(use), &b, &e) != 0 {
		return nil, goError(&e)
	}
	return device.Handle(b), nil
}

// Wrap passes C an address that it keeps; the caller has pinned Go memory.
func (p *driver) Wrap(memory []byte) (device.Handle, error) {
	var b *C.smelt_buffer
	var e C.smelt_error
	at := C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	if C.wrap_buffer(p.by, p.device, at, C.uint64_t(len(memory)), &b, &e) != 0 {
		return nil, goError(&e)
	}
	return device.Handle(b), nil
}

func (p *driver) Slice(whole device.Handle, offset, bytes int64) (device.Handle, error) {
	var b *C.smelt_buffer
	var e C.smelt_error
	if C.slice_buffer(p.by, (*C.smelt_buffer)(whole), C.uint64_t(offset), C.uint64_t(bytes), &b, &e) != 0 {
		return nil, goError(&e)
	}
	return device.Handle(b), nil
}

func (p *driver) Contents(buffer device.Handle, bytes int64) []byte {
	return unsafe.Slice((*byte)(C.buffer_contents(p.by, (*C.smelt_buffer)(buffer))), bytes)
}

func (p *driver) Free(buffer device.Handle) { C.close_buffer(p.by, (*C.smelt_buffer)(buffer)) }

func (p *driver) Rearranged(m *device.Matrix) int64 {
	return int64(C.interleaved_bytes(p.native, (*C.smelt_matrix)(unsafe.Pointer(m))))
}

func (p *driver) Load(compiled *plan.Plan, matrices []device.Matrix, buffers []device.Handle) (device.Handle, error) {
	t := flatten(compiled)
	for _, n := range []int{len(t.terms), len(t.values), len(t.arguments), len(t.words), len(t.constants), len(t.dispatches), len(t.names)} {
		if n > math.MaxInt32 {
			return nil, fmt.Errorf("a table of %d rows", n)
		}
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	c := C.smelt_tables{
		terms:          (*C.smelt_term)(pinned(&pins, t.terms)),
		values:         (*C.smelt_value)(pinned(&pins, t.values)),
		arguments:      (*C.smelt_argument)(pinned(&pins, t.arguments)),
		words:          (*C.uint32_t)(pinned(&pins, t.words)),
		constants:      (*C.uint32_t)(pinned(&pins, t.constants)),
		dispatches:     (*C.smelt_dispatch)(pinned(&pins, t.dispatches)),
		phases:         (*C.smelt_phase)(pinned(&pins, t.phases)),
		matrices:       (*C.smelt_matrix)(pinned(&pins, matrices)),
		names:          (*C.char)(pinned(&pins, t.names)),
		kernel_name:    (*C.uint32_t)(pinned(&pins, t.kernelNames)),
		label:          (*C.uint32_t)(pinned(&pins, t.labels)),
		term_count:     C.uint32_t(len(t.terms)),
		value_count:    C.uint32_t(len(t.values)),
		argument_count: C.uint32_t(len(t.arguments)),
		word_count:     C.uint32_t(len(t.words)),
		constant_count: C.uint32_t(len(t.constants)),
		dispatch_count: C.uint32_t(len(t.dispatches)),
		phase_count:    C.uint32_t(len(t.phases)),
		name_bytes:     C.uint32_t(len(t.names)),
		kernel_count:   C.uint32_t(len(t.kernelNames)),
		buffer_count:   C.uint32_t(len(compiled.Buffers)),
	}
	var executable *C.smelt_executable
	var e C.smelt_error
	if C.create_executable(p.by, p.device, &c, (**C.smelt_buffer)(pinned(&pins, buffers)), &executable, &e) != 0 {
		return nil, goError(&e)
	}
	return device.Handle(executable), nil
}

// pinned pins a table and returns its address, or null if it is empty.
func pinned[T any](pins *runtime.Pinner, table []T) unsafe.Pointer {
	if len(table) == 0 {
		return nil
	}
	pins.Pin(&table[0])
	return unsafe.Pointer(&table[0])
}

func (p *driver) Natives(executable device.Handle, kernels int) []bool {
	if kernels == 0 {
		return nil
	}
	bits := make([]C.uint8_t, kernels)
	C.executable_natives(p.by, (*C.smelt_executable)(executable), &bits[0])
	list := make([]bool, kernels)
	for i, b := range bits {
		list[i] = b != 0
	}
	return list
}

func (p *driver) Compiled(executable device.Handle) device.Compiled {
	var c C.smelt_compiled
	C.executable_compiled(p.by, (*C.smelt_executable)(executable), &c)
	return device.Compiled{Pipelines: int(c.pipelines), Kept: int(c.kept), Time: time.Duration(c.nanoseconds)}
}

func (p *driver) Unload(executable device.Handle) {
	C.close_executable(p.by, (*C.smelt_executable)(executable))
}

func (p *driver) Begin(executable device.Handle, buffers []device.Handle, ringStrides []uint64) (device.Handle, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var s *C.smelt_instance
	var e C.smelt_error
	if C.create_instance(p.by, (*C.smelt_executable)(executable), (**C.smelt_buffer)(pinned(&pins, buffers)),
		(*C.uint64_t)(pinned(&pins, ringStrides)), &s, &e) != 0 {
		return nil, goError(&e)
	}
	return device.Handle(s), nil
}

func (p *driver) End(instance device.Handle) { C.close_instance(p.by, (*C.smelt_instance)(instance)) }

func (p *driver) Run(instance device.Handle, s *device.Command, c *device.Counts, nanoseconds []uint64) error {
	if C.run_instance(p.by, (*C.smelt_instance)(instance), (*C.smelt_step)(unsafe.Pointer(s)),
		(*C.smelt_counts)(unsafe.Pointer(&c.Totals)), (*C.smelt_kernel_count)(unsafe.Pointer(unsafe.SliceData(c.Kernels))),
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(nanoseconds))), &p.failed) != 0 {
		return goError(&p.failed)
	}
	return nil
}

func (p *driver) Cancel(instance device.Handle, yes bool) {
	C.cancel_instance(p.by, (*C.smelt_instance)(instance), flag(yes))
}
