//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "host.h"

#include <algorithm>
#include <cinttypes>
#include <string>

using smelt::fail;

namespace {

// nowhere returns memory of any size that is never read.
smelt::Launches::Memory nowhere() {
    static uint8_t page[64];
    return {page, UINT64_MAX / 2};
}

} // namespace

smelt_executable::smelt_executable(smelt_device *device, const smelt_tables &t, smelt_buffer *const *buffers)
    : device(device), terms(t.terms, t.terms + t.term_count), values(t.values, t.values + t.value_count),
      arguments(t.arguments, t.arguments + t.argument_count), words(t.words, t.words + t.word_count),
      constants(t.constants, t.constants + t.constant_count), dispatches(t.dispatches, t.dispatches + t.dispatch_count),
      phases(t.phases, t.phases + t.phase_count), buffers(buffers, buffers + t.buffer_count) {}

int smelt_executable::findKernels(const smelt_tables &t, smelt_error *error) {
    const auto &o = device->options;
    for (uint32_t i = 0; i < t.kernel_count; i++) {
        Kernel k{t.names + t.kernel_name[i], nullptr, nullptr, nullptr, false};
        if (o.emulator != nullptr) {
            k.emulated = o.emulator->find(k.name.c_str());
        }
        if (o.use_native != 0 && o.native != nullptr) {
            k.native = o.native->find(k.name.c_str());
        }
        if (o.blas != nullptr) {
            k.blas = o.blas->find(k.name.c_str());
        }
        if (k.emulated == nullptr && k.native == nullptr && o.half == 0) {
            return fail(error, SMELT_ERROR_KERNEL, -1, -1, "no kernel is called %s", k.name.c_str());
        }
        kernels.push_back(std::move(k));
    }
    return SMELT_OK;
}

// findNatives finds the native kernels that cover every dispatch at the bounds. Instances' memory
// is replaced by nowhere, as kernels look only at constants and parameters.
int smelt_executable::findNatives(smelt_error *error) {
    smelt::Launches launches(*this);
    std::vector<smelt::Launches::Memory> memory(buffers.size(), nowhere());
    for (size_t i = 0; i < buffers.size(); i++) {
        if (buffers[i] != nullptr) {
            memory[i] = {static_cast<uint8_t *>(buffers[i]->memory), buffers[i]->bytes};
        }
    }
    for (auto &k : kernels) {
        k.native_everywhere = k.native != nullptr;
    }
    for (const auto &phase : phases) {
        if (int code = launches.resolve(phase, phase.bounds, memory, error)) {
            error->dispatch += static_cast<int32_t>(phase.first_dispatch);
            return code;
        }
        for (uint32_t d = phase.first_dispatch; d < phase.first_dispatch + phase.dispatch_count; d++) {
            auto &k = kernels[dispatches[d].kernel];
            if (!runs(dispatches[d]) || launches.native(d) != nullptr) {
                continue;
            }
            if (k.emulated == nullptr) {
                return fail(error, SMELT_ERROR_KERNEL, d, -1, "the CPU has no kernel %s that covers this launch",
                            k.name.c_str());
            }
            k.native_everywhere = false;
        }
    }
    return SMELT_OK;
}

// rearrange lists the matrices whose dispatches, in every phase, all run natively with
// kernels that take them in another order.
void smelt_executable::rearrange(const smelt_tables &t) {
    const auto &o = device->options;
    if (o.use_native == 0 || o.native == nullptr || o.half != 0 || o.rearrange == SMELT_REARRANGE_NEVER) {
        return;
    }
    std::vector<bool> possible(buffers.size());
    for (size_t i = 0; i < buffers.size(); i++) {
        // A weight that was copied already, because of its alignment, is not copied again.
        possible[i] = buffers[i] != nullptr && !buffers[i]->mapped && t.matrices[i].rows != 0;
    }
    for (const auto &d : dispatches) {
        const auto &k = kernels[d.kernel];
        uint32_t takes = k.native_everywhere ? k.native->interleaved : 0;
        for (uint32_t a = d.first_argument; a < d.first_argument + d.argument_count; a++) {
            if ((takes >> arguments[a].index & 1) == 0 || arguments[a].offset != 0) {
                possible[arguments[a].buffer] = false;
            }
        }
    }
    std::vector<smelt::Rearranged::Source> sources(buffers.size());
    for (size_t i = 0; i < buffers.size(); i++) {
        if (possible[i]) {
            sources[i] = {static_cast<const uint8_t *>(buffers[i]->memory), buffers[i]->bytes, t.matrices[i]};
        }
    }
    if (device->pool->nodes().count() > 1) {
        findReaders(sources);
    }
    rearranged = std::make_unique<smelt::Rearranged>(o, *device->pool, std::move(sources));
}

// findReaders sets, for each matrix, the units that read it in the first dispatch that has such
// units: all such dispatches cut its rows alike.
void smelt_executable::findReaders(std::vector<smelt::Rearranged::Source> &sources) const {
    smelt::Launches launches(*this);
    std::vector<smelt::Launches::Memory> memory(buffers.size(), nowhere());
    smelt_error error;
    for (const auto &phase : phases) {
        if (launches.resolve(phase, phase.bounds, memory, &error) != SMELT_OK) {
            return; // findNatives has returned this error
        }
        for (uint32_t i = phase.first_dispatch; i < phase.first_dispatch + phase.dispatch_count; i++) {
            const auto &d = dispatches[i];
            const auto *native = kernels[d.kernel].native;
            if (native == nullptr || native->readers == nullptr) {
                continue;
            }
            for (uint32_t a = d.first_argument; a < d.first_argument + d.argument_count; a++) {
                auto &source = sources[arguments[a].buffer];
                if (source.memory == nullptr || source.readers.count != 0) {
                    continue;
                }
                source.readers = native->readers(&launches[i], arguments[a].index);
                source.units = native->stages[native->stage_count - 1].units(&launches[i]);
            }
        }
    }
}

void smelt_executable::evaluate(const int64_t *sizes, std::vector<int64_t> &results) const {
    for (size_t i = 0; i < values.size(); i++) {
        const auto &v = values[i];
        int64_t sum = v.constant;
        for (uint32_t j = v.first_term; j < v.first_term + v.term_count; j++) {
            const auto &t = terms[j];
            int64_t product = t.mul;
            for (int s = 0; s < SMELT_SYMBOLS; s++) {
                for (int p = t.power[s]; p > 0; p--) {
                    product *= sizes[s];
                }
            }
            sum += (product + t.add + t.div - 1) / t.div;
        }
        results[i] = sum;
    }
}

namespace smelt {

Launches::Launches(const smelt_executable &executable)
    : executable_(executable), values_(executable.values.size()), launches_(executable.dispatches.size()),
      threadgroups_(executable.dispatches.size()), words_(executable.words.size()) {
    std::vector<uint32_t> slots;
    size_t total = 0;
    for (const auto &d : executable.dispatches) {
        uint32_t count = d.word_count != 0 ? d.params_at + 1 : 0;
        for (uint32_t a = d.first_argument; a < d.first_argument + d.argument_count; a++) {
            count = std::max(count, executable.arguments[a].index + 1);
        }
        slots.push_back(count);
        total += count;
    }
    pointers_.resize(total);
    bytes_.resize(total);
    size_t at = 0;
    for (size_t i = 0; i < launches_.size(); i++) {
        const auto &d = executable.dispatches[i];
        auto &l = launches_[i];
        l = {};
        l.kernel = executable.kernels[d.kernel].name.c_str();
        l.buffers = pointers_.data() + at;
        l.buffer_bytes = bytes_.data() + at;
        l.buffer_count = slots[i];
        l.constants = executable.constants.data() + d.first_constant;
        l.constants_set = d.constants_set;
        std::copy(d.group, d.group + 3, l.group);
        std::copy(d.hints, d.hints + SMELT_HINTS, l.hints);
        if (d.word_count != 0) {
            pointers_[at + d.params_at] = words_.data() + d.first_word;
            bytes_[at + d.params_at] = uint64_t{d.word_count} * 4;
        }
        at += slots[i];
    }
}

int Launches::resolve(const smelt_phase &phase, const int64_t *sizes, const std::vector<Memory> &memory,
                      smelt_error *error) {
    executable_.evaluate(sizes, values_);
    for (uint32_t i = 0; i < phase.dispatch_count; i++) {
        if (int code = resolveOne(phase.first_dispatch + i, memory, error)) {
            error->dispatch = static_cast<int32_t>(i);
            return code;
        }
    }
    return SMELT_OK;
}

void Launches::useRearranged(uint32_t index, const smelt_native_kernel *native) {
    if (executable_.rearranged == nullptr || native == nullptr || native->interleaved == 0) {
        return;
    }
    const auto &d = executable_.dispatches[index];
    auto &l = launches_[index];
    for (uint32_t a = d.first_argument; a < d.first_argument + d.argument_count; a++) {
        const auto &argument = executable_.arguments[a];
        const uint8_t *ready = executable_.rearranged->at(argument.buffer);
        if (ready != nullptr) {
            pointers_[l.buffers - pointers_.data() + argument.index] = const_cast<uint8_t *>(ready);
            l.interleaved |= 1u << argument.index;
        }
    }
}

int Launches::resolveOne(uint32_t index, const std::vector<Memory> &memory, smelt_error *error) {
    const auto &d = executable_.dispatches[index];
    auto &l = launches_[index];
    double groups = 1;
    threadgroups_[index] = 1;
    for (int i = 0; i < 3; i++) {
        int64_t n = values_[d.grid[i]];
        if (n < 0 || n > UINT32_MAX) {
            return fail(error, SMELT_ERROR_BOUNDS, -1, -1, "a grid of %" PRId64 " threadgroups on axis %d", n, i);
        }
        l.grid[i] = static_cast<uint32_t>(n);
        threadgroups_[index] *= static_cast<uint64_t>(n);
        groups *= static_cast<double>(n);
    }
    if (groups > 0x1p50) {
        return fail(error, SMELT_ERROR_BOUNDS, -1, -1, "a grid of %u by %u by %u threadgroups", l.grid[0], l.grid[1],
                    l.grid[2]);
    }
    for (uint32_t w = d.first_word; w < d.first_word + d.word_count; w++) {
        int64_t n = values_[executable_.words[w]];
        if (n < INT32_MIN || n > UINT32_MAX) {
            return fail(error, SMELT_ERROR_BOUNDS, -1, -1, "parameter %u is %" PRId64 ", which does not fit 32 bits",
                        w - d.first_word, n);
        }
        words_[w] = static_cast<uint32_t>(n);
    }
    l.interleaved = 0;
    size_t at = l.buffers - pointers_.data();
    for (uint32_t i = 0; i < d.argument_count; i++) {
        const auto &a = executable_.arguments[d.first_argument + i];
        const Memory &m = memory[a.buffer];
        int64_t have = static_cast<int64_t>(m.bytes) - a.offset;
        int64_t want = values_[a.bytes];
        if (want < 0 || want > have) {
            return fail(error, SMELT_ERROR_BOUNDS, -1, i, "bytes %" PRId64 " to %" PRId64 " of a buffer of %" PRIu64,
                        a.offset, a.offset + want, m.bytes);
        }
        pointers_[at + a.index] = m.base + a.offset;
        bytes_[at + a.index] = static_cast<uint64_t>((a.access & SMELT_WHOLE) != 0 ? have : want);
    }
    return SMELT_OK;
}

const smelt_native_kernel *Launches::native(uint32_t dispatch) const {
    const auto &d = executable_.dispatches[dispatch];
    const auto &kernel = executable_.kernels[d.kernel];
    for (const auto *k : {d.on_cpu != 0 ? kernel.blas : nullptr, kernel.native}) {
        if (k != nullptr && (k->supports == nullptr || k->supports(&launches_[dispatch]) != 0)) {
            return k;
        }
    }
    return nullptr;
}

} // namespace smelt
