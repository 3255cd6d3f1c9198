//go:build cgo && linux && (amd64 || arm64)

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "kernels/abi/abi.h"

namespace {

using Kernel = bool (*)(const smelt_launch &launch, uint64_t group, char *error, size_t error_size);

// elements returns how many 32-bit elements argument i has; none if it is unbound.
uint64_t elements(const smelt_launch &l, uint32_t i) {
    return i < l.buffer_count && l.buffers[i] != nullptr ? l.buffer_bytes[i] / 4 : 0;
}

uint32_t word(const smelt_launch &l, uint32_t buffer, uint32_t index) {
    return index < elements(l, buffer) ? static_cast<const uint32_t *>(l.buffers[buffer])[index] : 0;
}

float asFloat(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// each calls f for the elements of a group of 256, of n and of what the first
// buffers hold.
template <typename F> bool each(const smelt_launch &l, uint32_t buffers, uint64_t group, uint64_t n, F f) {
    for (uint32_t b = 0; b < buffers; b++) {
        n = std::min(n, elements(l, b));
    }
    for (uint64_t i = group * 256; i < group * 256 + 256 && i < n; i++) {
        f(i);
    }
    return true;
}

// fill: 0 out float[n] · 1 {n, value}
bool fill(const smelt_launch &l, uint64_t group, char *, size_t) {
    auto *out = static_cast<float *>(l.buffers[0]);
    return each(l, 1, group, word(l, 1, 0), [&](uint64_t i) { out[i] = asFloat(word(l, 1, 1)); });
}

// add: 0 a · 1 b · 2 out float[n] · 3 {n}; function constant 0, if set: subtract
bool add(const smelt_launch &l, uint64_t group, char *, size_t) {
    auto *a = static_cast<const float *>(l.buffers[0]), *b = static_cast<const float *>(l.buffers[1]);
    auto *out = static_cast<float *>(l.buffers[2]);
    float sign = (l.constants_set & 1) != 0 && l.constants[0] != 0 ? -1.0f : 1.0f;
    return each(l, 3, group, word(l, 3, 0), [&](uint64_t i) { out[i] = a[i] + sign * b[i]; });
}

// widen: 0 in int[n] · 1 out float[n] · 2 {n}
bool widen(const smelt_launch &l, uint64_t group, char *, size_t) {
    auto *in = static_cast<const int32_t *>(l.buffers[0]);
    auto *out = static_cast<float *>(l.buffers[1]);
    return each(l, 2, group, word(l, 2, 0), [&](uint64_t i) { out[i] = static_cast<float>(in[i]); });
}

// bytes: 0 anything · 1 out float[1]: how many bytes are bound
bool bytes(const smelt_launch &l, uint64_t, char *, size_t) {
    *static_cast<float *>(l.buffers[1]) = static_cast<float>(l.buffer_bytes[0]);
    return true;
}

// total: 0 in float[n] · 1 out float[1] · 2 {n}
bool total(const smelt_launch &l, uint64_t, char *, size_t) {
    auto *in = static_cast<const float *>(l.buffers[0]);
    float sum = 0;
    for (uint32_t i = 0; i < word(l, 2, 0); i++) {
        sum += in[i];
    }
    *static_cast<float *>(l.buffers[1]) = sum;
    return true;
}

bool empty(const smelt_launch &, uint64_t, char *, size_t) { return true; }

// diverge: 0 {n}: fails if there are more than n threadgroups
bool diverge(const smelt_launch &l, uint64_t group, char *error, size_t error_size) {
    if (group < word(l, 0, 0)) {
        return true;
    }
    snprintf(error, error_size, "threads of threadgroup %llu wait at different barriers",
             static_cast<unsigned long long>(group));
    return false;
}

std::atomic<uint32_t> waiting{0}, released{0};

// hold waits for trial_release.
bool hold(const smelt_launch &, uint64_t, char *, size_t) {
    waiting.fetch_add(1);
    for (uint32_t left = released.load();; left = released.load()) {
        if (left != 0 && released.compare_exchange_weak(left, left - 1)) {
            break;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    waiting.fetch_sub(1);
    return true;
}

struct Named {
    const char *name;
    Kernel kernel;
};

const Named emulated[] = {
    {"fill", fill},   {"add", add},     {"widen", widen},     {"bytes", bytes},
    {"total", total}, {"empty", empty}, {"diverge", diverge}, {"hold", hold},
};

const void *findEmulated(const char *name) {
    for (const auto &k : emulated) {
        if (strcmp(k.name, name) == 0) {
            return &k;
        }
    }
    return nullptr;
}

int runEmulated(const void *kernel, const smelt_launch *launch, const smelt_emulation *, uint64_t begin, uint64_t end,
                char *error, size_t error_size) {
    for (uint64_t g = begin; g < end; g++) {
        if (!static_cast<const Named *>(kernel)->kernel(*launch, g, error, error_size)) {
            return 1;
        }
    }
    return 0;
}

const smelt_emulator emulator = {findEmulated, runEmulated};

// total in two stages: sums of 64 elements into scratch, then their sum.
uint64_t partUnits(const smelt_launch *l) { return (uint64_t{word(*l, 2, 0)} + 63) / 64; }
uint64_t one(const smelt_launch *) { return 1; }
size_t partBytes(const smelt_launch *l) { return partUnits(l) * sizeof(float); }
int smallTotal(const smelt_launch *l) { return word(*l, 2, 0) <= 1 << 20; }

void sumParts(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    auto *in = static_cast<const float *>(l->buffers[0]);
    for (uint64_t u = begin; u < end; u++) {
        float sum = 0;
        for (uint64_t i = u * 64; i < u * 64 + 64 && i < word(*l, 2, 0); i++) {
            sum += in[i];
        }
        static_cast<float *>(shared)[u] = sum;
    }
}

void sumOfParts(const smelt_launch *l, void *shared, uint64_t, uint64_t) {
    float sum = 0;
    for (uint64_t i = 0; i < partUnits(l); i++) {
        sum += static_cast<const float *>(shared)[i];
    }
    *static_cast<float *>(l->buffers[1]) = sum;
}

void nothing(const smelt_launch *, void *, uint64_t, uint64_t) {}

const smelt_native_kernel natives[] = {
    {"total", smallTotal, partBytes, 2, {{partUnits, sumParts}, {one, sumOfParts}}, 0, nullptr},
    {"empty", nullptr, nullptr, 1, {{one, nothing}, {nullptr, nullptr}}, 0, nullptr},
};

const smelt_native_kernel *findNative(const char *name) {
    for (const auto &k : natives) {
        if (strcmp(k.name, name) == 0) {
            return &k;
        }
    }
    return nullptr;
}

const smelt_native native = {"trial", findNative, nullptr, nullptr, 0};

} // namespace

extern "C" const void *trial_emulator(void) { return &emulator; }
extern "C" const void *trial_native(void) { return &native; }
extern "C" uint32_t trial_waiting(void) { return waiting.load(); }
extern "C" void trial_release(void) { released.fetch_add(1); }
