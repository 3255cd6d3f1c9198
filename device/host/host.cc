//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "host.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include <sys/mman.h>

namespace smelt {

int fail(smelt_error *error, int code, int64_t dispatch, int64_t argument, const char *format, ...) {
    error->code = code;
    error->dispatch = static_cast<int32_t>(dispatch);
    error->argument = static_cast<int32_t>(argument);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return code;
}

Scratch::~Scratch() { free(memory_); }

bool Scratch::reserve(size_t bytes) {
    if (bytes <= bytes_) {
        return true;
    }
    free(memory_);
    bytes_ = 0;
    size_t rounded = (bytes + bytes / 4 + 63) / 64 * 64; // some more, since prompts grow
    memory_ = static_cast<uint8_t *>(aligned_alloc(64, rounded));
    if (memory_ == nullptr) {
        return false;
    }
    bytes_ = rounded;
    return true;
}

} // namespace smelt

using smelt::fail;

namespace {

// guarded turns the exceptions of allocation and of thread creation into errors.
template <typename F> int guarded(smelt_error *error, F body) {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return fail(error, SMELT_ERROR_MEMORY, -1, -1, "out of memory");
    } catch (const std::system_error &e) {
        return fail(error, SMELT_ERROR_SYSTEM, -1, -1, "%s", e.what());
    } catch (const std::exception &e) {
        return fail(error, SMELT_ERROR_SYSTEM, -1, -1, "%s", e.what());
    }
}

int deviceOpen(const smelt_device_options *options, smelt_device **device, smelt_error *error) {
    return guarded(error, [&] {
        auto d = std::make_unique<smelt_device>();
        d->options = *options;
        d->pool = std::make_unique<smelt::Pool>(smelt::Nodes(options->threads, options->places));
        d->options.places = nullptr;
        *device = d.release();
        return SMELT_OK;
    });
}

void deviceClose(smelt_device *device) { delete device; }

void deviceInfo(const smelt_device *device, smelt_info *info) {
    *info = {};
    const auto &o = device->options;
    snprintf(info->isa, sizeof info->isa, "%s", o.use_native != 0 && o.native != nullptr ? o.native->isa : "");
    info->half_integers = o.use_native != 0 && o.native != nullptr ? o.native->half_integers : 0;
    info->threads = device->pool->threads();
    info->nodes = static_cast<uint32_t>(device->pool->nodes().count());
    info->page_bytes = 1;
    info->max_buffer_bytes = SIZE_MAX / 2;
}

int bufferCreate(smelt_device *device, uint64_t bytes, uint32_t purpose, smelt_buffer **buffer, smelt_error *error) {
    return guarded(error, [&] {
        auto b = std::make_unique<smelt_buffer>(smelt_buffer{nullptr, bytes, true});
        // At least a page, so that pointers to it are valid.
        b->memory = mmap(nullptr, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b->memory == MAP_FAILED) {
            return fail(error, SMELT_ERROR_MEMORY, -1, -1, "%llu bytes: %s", static_cast<unsigned long long>(bytes),
                        std::generic_category().message(errno).c_str());
        }
        // Only advice, which a system without huge pages ignores. A huge page
        // for each head's first slot would cost as much as a full cache.
#ifdef MADV_HUGEPAGE
        if (purpose != SMELT_SHARED) {
            madvise(b->memory, bytes, purpose == SMELT_DENSE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        }
#else
        (void)purpose;
#endif
        // The threads of all nodes read a cache.
        if (const auto &nodes = device->pool->nodes(); purpose == SMELT_SPARSE && nodes.count() > 1) {
            nodes.spread(b->memory, bytes);
        }
        *buffer = b.release();
        return 0;
    });
}

int bufferWrap(smelt_device *, const void *memory, uint64_t bytes, smelt_buffer **buffer, smelt_error *error) {
    return guarded(error, [&] {
        *buffer = new smelt_buffer{const_cast<void *>(memory), bytes, false};
        return SMELT_OK;
    });
}

int bufferSlice(smelt_buffer *whole, uint64_t offset, uint64_t bytes, smelt_buffer **buffer, smelt_error *error) {
    return guarded(error, [&] {
        if (offset > whole->bytes || bytes > whole->bytes - offset) {
            return fail(error, SMELT_ERROR_BOUNDS, -1, -1, "a slice past the end of its buffer");
        }
        *buffer = new smelt_buffer{static_cast<uint8_t *>(whole->memory) + offset, bytes, false};
        return 0;
    });
}

void *bufferContents(smelt_buffer *buffer) { return buffer->memory; }

void bufferClose(smelt_buffer *buffer) {
    if (buffer->mapped) {
        munmap(buffer->memory, buffer->bytes == 0 ? 1 : buffer->bytes);
    }
    delete buffer;
}

int executableCreate(smelt_device *device, const smelt_tables *tables, smelt_buffer *const *buffers,
                     smelt_executable **executable, smelt_error *error) {
    return guarded(error, [&] {
        auto p = std::make_unique<smelt_executable>(device, *tables, buffers);
        if (int code = p->findKernels(*tables, error)) {
            return code;
        }
        if (int code = p->findNatives(error)) {
            return code;
        }
        p->rearrange(*tables);
        *executable = p.release();
        return static_cast<int>(SMELT_OK);
    });
}

void executableNatives(const smelt_executable *executable, uint8_t *natives) {
    for (size_t i = 0; i < executable->kernels.size(); i++) {
        natives[i] = executable->kernels[i].native_everywhere;
    }
}

void executableCompiled(const smelt_executable *, smelt_compiled *compiled) { *compiled = {}; }

void executableClose(smelt_executable *executable) { delete executable; }

int instanceCreate(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride,
                   smelt_instance **instance, smelt_error *error) {
    return guarded(error, [&] {
        *instance = new smelt_instance(executable, buffers, ring_stride);
        return SMELT_OK;
    });
}

void instanceClose(smelt_instance *instance) { delete instance; }

int instanceRun(smelt_instance *instance, const smelt_step *step, smelt_counts *counts, smelt_kernel_count *kernels,
                uint64_t *nanoseconds, smelt_error *error) {
    return guarded(error, [&] { return instance->run(*step, counts, kernels, nanoseconds, error); });
}

void instanceCancel(smelt_instance *instance, uint32_t cancel) { instance->cancel.store(cancel); }

const smelt_provider provider = {
    "host",          deviceOpen,     deviceClose,   deviceInfo,       bufferCreate,      bufferWrap,
    bufferSlice,     bufferContents, bufferClose,   executableCreate, executableNatives, executableCompiled,
    executableClose, instanceCreate, instanceClose, instanceRun,      instanceCancel,
};

int hostResolve(smelt_instance *instance, const smelt_step *step, smelt_error *error) {
    return guarded(error, [&] { return instance->resolve(*step, error); });
}

const smelt_launch *hostLaunch(const smelt_instance *instance, uint32_t dispatch) {
    return &instance->launch(dispatch);
}

int hostRun(smelt_instance *instance, uint32_t first, uint32_t count, smelt_counts *counts, smelt_kernel_count *kernels,
            uint64_t *nanoseconds, smelt_error *error) {
    return guarded(error, [&] { return instance->runRange(first, count, counts, kernels, nanoseconds, error); });
}

const smelt_host half = {&provider, hostResolve, hostLaunch, hostRun};

} // namespace

const smelt_provider *smelt_host_provider(void) { return &provider; }

const smelt_host *smelt_host_half(void) { return &half; }
