//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "host.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

using smelt::fail;

namespace {

uint64_t nanosecondsNow() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t nextRandom(uint64_t &state) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

constexpr size_t alignUp(size_t n) { return (n + 63) / 64 * 64; }

} // namespace

smelt_instance::smelt_instance(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride)
    : executable_(*executable), launches_(*executable), buffers_(executable->buffers),
      ring_stride_(ring_stride, ring_stride + executable->buffers.size()), memory_(executable->buffers.size()) {
    for (size_t i = 0; i < buffers_.size(); i++) {
        if (buffers_[i] == nullptr) {
            buffers_[i] = buffers[i];
        }
    }
    uint32_t longest = 0;
    for (const auto &p : executable->phases) {
        longest = std::max(longest, p.dispatch_count);
    }
    const auto &nodes = executable->device->pool->nodes();
    items_.resize(2 * size_t{longest} * nodes.count());
    node_chunks_.resize(nodes.count());
    jobs_.reserve(longest);
    spans_.resize(2 * size_t{longest});
    waves_ = std::vector<smelt::Wave>(2 * size_t{longest});
    for (auto &w : waves_) {
        w.reset(node_chunks_.data(), nodes);
    }
    order_.resize(longest);
    natives_.resize(longest);
}

int smelt_instance::run(const smelt_step &step, smelt_counts *counts, smelt_kernel_count *kernels,
                        uint64_t *nanoseconds, smelt_error *error) {
    smelt::Rearranged::Pause pause(executable_.rearranged.get());
    // Everything is checked before anything runs, so a rejected step has changed nothing.
    if (int code = resolve(step, error)) {
        return code;
    }
    uint32_t dispatches = executable_.phases[step.phase].dispatch_count;
    *counts = {};
    std::fill(kernels, kernels + executable_.kernels.size(), smelt_kernel_count{});
    if (nanoseconds != nullptr) {
        std::fill(nanoseconds, nanoseconds + dispatches, 0);
    }
    return runRange(0, dispatches, counts, kernels, nanoseconds, error);
}

int smelt_instance::resolve(const smelt_step &step, smelt_error *error) {
    for (size_t i = 0; i < memory_.size(); i++) {
        uint64_t stride = ring_stride_[i];
        auto *base = static_cast<uint8_t *>(buffers_[i]->memory);
        memory_[i] = stride == 0 ? smelt::Launches::Memory{base, buffers_[i]->bytes}
                                 : smelt::Launches::Memory{base + stride * step.slot, stride};
    }
    const auto &phase = executable_.phases[step.phase];
    if (int code = launches_.resolve(phase, step.sizes, memory_, error)) {
        return code;
    }
    first_dispatch_ = phase.first_dispatch;
    profile_ = step.profile != 0;
    random_ = step.seed;
    for (uint32_t i = 0; i < phase.dispatch_count; i++) {
        const auto &d = executable_.dispatches[phase.first_dispatch + i];
        natives_[i] = launches_.native(phase.first_dispatch + i);
        if (natives_[i] == nullptr && executable_.kernels[d.kernel].emulated == nullptr && executable_.runs(d)) {
            return fail(error, SMELT_ERROR_KERNEL, i, -1, "the native kernel %s does not cover these sizes",
                        executable_.kernels[d.kernel].name.c_str());
        }
        launches_.useRearranged(phase.first_dispatch + i, natives_[i]);
    }
    return SMELT_OK;
}

int smelt_instance::runRange(uint32_t first, uint32_t count, smelt_counts *counts, smelt_kernel_count *kernels,
                             uint64_t *nanoseconds, smelt_error *error) {
    if (int code = cut(first, count, error)) {
        return code;
    }
    counts_ = counts;
    kernels_ = kernels;
    nanoseconds_ = nanoseconds;
    failed_.store(false, std::memory_order_relaxed);
    cancelled_ = false;
    if (wave_count_ != 0 && !stopBefore(0)) {
        wave_began_ = nanoseconds != nullptr ? nanosecondsNow() : 0;
        executable_.device->pool->run(*this, waves_.data(), wave_count_);
    }
    if (failed_.load(std::memory_order_relaxed)) {
        *error = failure_;
        return error->code;
    }
    if (cancelled_) {
        return fail(error, SMELT_ERROR_CANCELLED, -1, -1, "stopped after %u dispatches", counts->dispatches);
    }
    return SMELT_OK;
}

// cut makes waves of resolved dispatches.
int smelt_instance::cut(uint32_t begin, uint32_t count, smelt_error *error) {
    bool serial = executable_.device->options.shuffle != 0 || profile_;
    item_count_ = wave_count_ = barriers_ = command_buffers_ = 0;
    whole_ = true;
    size_t scratch = 0;
    uint32_t first = begin;
    for (uint32_t i = begin; i < begin + count; i++) {
        const auto &d = executable_.dispatches[first_dispatch_ + i];
        if (d.barrier != 0 || d.command_buffer != 0) {
            scratch = std::max(scratch, addGroup(first, i - first, serial));
            first = i;
            barriers_ += d.barrier;
            command_buffers_ += d.command_buffer;
            whole_ = whole_ && d.command_buffer == 0;
        }
    }
    scratch = std::max(scratch, addGroup(first, begin + count - first, serial));
    if (!executable_.device->scratch.reserve(scratch)) {
        return fail(error, SMELT_ERROR_MEMORY, -1, -1, "%zu bytes of scratch", scratch);
    }
    return SMELT_OK;
}

// addGroup makes waves of independent dispatches, by index in the phase, and
// returns the bytes of scratch that they need.
size_t smelt_instance::addGroup(uint32_t first, uint32_t count, bool serial) {
    const auto &options = executable_.device->options;
    for (uint32_t i = 0; i < count; i++) {
        order_[i] = first + i;
    }
    if (options.shuffle != 0) {
        for (uint32_t i = count; i > 1; i--) {
            std::swap(order_[i - 1], order_[nextRandom(random_) % i]);
        }
    }
    // If serial, a dispatch ends before the next begins; else all first stages
    // form a wave and all second stages another.
    uint32_t step = serial ? 1 : count;
    size_t most = 0;
    for (uint32_t begin = 0; begin < count; begin += step) {
        for (uint32_t stage = 0; stage < 2; stage++) {
            size_t scratch = 0;
            jobs_.clear();
            for (uint32_t i = begin; i < begin + step; i++) {
                addJob(order_[i], stage, scratch);
                if (const auto *k = natives_[order_[i]]; k != nullptr && k->shared_bytes != nullptr) {
                    scratch += alignUp(k->shared_bytes(&launches_[first_dispatch_ + order_[i]]));
                }
            }
            most = std::max(most, scratch);
            addWave();
        }
    }
    return most;
}

// addJob adds a stage, if the dispatch has it, to the next wave.
void smelt_instance::addJob(uint32_t dispatch, uint32_t stage, size_t scratch) {
    const auto *native = natives_[dispatch];
    uint32_t stages = native != nullptr ? native->stage_count : 1;
    uint64_t groups = launches_.threadgroups(first_dispatch_ + dispatch);
    if (groups == 0 || stage >= stages) {
        return; // at these sizes there is nothing to do
    }
    // A stage without units is added too, so that its dispatch is counted.
    uint64_t units = native != nullptr ? native->stages[stage].units(&launches_[first_dispatch_ + dispatch]) : groups;
    jobs_.push_back({dispatch, stage, stage + 1 == stages, units, scratch});
}

// addWave makes a wave of the jobs, with the items of each memory node, one node after the other.
void smelt_instance::addWave() {
    auto &span = spans_[wave_count_] = {item_count_, 0, 0, 0};
    const auto &nodes = executable_.device->pool->nodes();
    uint32_t chunks = 0;
    for (size_t n = 0; n < nodes.count(); n++) {
        uint32_t before = chunks;
        for (const Job &job : jobs_) {
            addItem(job, n, chunks);
        }
        node_chunks_[n] = chunks - before;
    }
    span.item_count = item_count_ - span.first_item;
    if (span.item_count == 0) {
        return;
    }
    waves_[wave_count_].reset(node_chunks_.data(), nodes);
    span.barriers = std::exchange(barriers_, 0);
    span.command_buffers = std::exchange(command_buffers_, 0);
    wave_count_++;
}

// addItem cuts a memory node's part of a job into chunks.
void smelt_instance::addItem(const Job &job, size_t node, uint32_t &chunks) {
    const auto &nodes = executable_.device->pool->nodes();
    auto units = nodes.part(node, job.units);
    if (units.begin == units.end && (job.units != 0 || node != 0)) {
        return;
    }
    bool shuffle = executable_.device->options.shuffle != 0;
    uint64_t most = nodes.threads() == 1 && !shuffle ? 1 : uint64_t{nodes[node].threads} * smelt::chunks_per_thread;
    auto count = static_cast<uint32_t>(std::clamp<uint64_t>(units.end - units.begin, 1, most));
    bool backwards = shuffle && (nextRandom(random_) & 1) != 0;
    items_[item_count_++] = {job.dispatch, chunks,
                             count,        job.stage,
                             units,        natives_[job.dispatch],
                             job.scratch,  job.last && units.end == job.units,
                             backwards};
    chunks += count;
}

void smelt_instance::run(uint32_t wave, uint32_t chunk, uint32_t &cursor) {
    const auto *items = items_.data() + spans_[wave].first_item;
    if (chunk < items[cursor].first_chunk) { // another thread's last ones descend
        cursor = 0;
    }
    while (chunk >= items[cursor].first_chunk + items[cursor].chunks) {
        cursor++;
    }
    const auto &item = items[cursor];
    uint64_t c = chunk - item.first_chunk;
    if (item.backwards) {
        c = item.chunks - 1 - c;
    }
    uint64_t count = item.units.end - item.units.begin;
    uint64_t begin = item.units.begin + count * c / item.chunks, end = item.units.begin + count * (c + 1) / item.chunks;
    if (begin == end || failed_.load(std::memory_order_relaxed)) {
        return;
    }
    try {
        execute(item, begin, end);
    } catch (const std::exception &e) {
        record(item.dispatch, e.what());
    }
}

void smelt_instance::execute(const Item &item, uint64_t begin, uint64_t end) {
    const auto &launch = launches_[first_dispatch_ + item.dispatch];
    auto &device = *executable_.device;
    if (item.native != nullptr) {
        item.native->stages[item.stage].run(&launch, device.scratch.at(item.scratch), begin, end);
        return;
    }
    char message[sizeof failure_.message] = "";
    const auto &kernel = executable_.kernels[executable_.dispatches[first_dispatch_ + item.dispatch].kernel];
    if (device.options.emulator->run(kernel.emulated, &launch, &device.options.emulation, begin, end, message,
                                     sizeof message) != 0) {
        record(item.dispatch, message);
    }
}

// record keeps the first failure of the step.
void smelt_instance::record(uint32_t dispatch, const char *message) {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
        fail(&failure_, SMELT_ERROR_EXECUTION, dispatch, -1, "%s", message);
        failed_.store(true, std::memory_order_relaxed);
    }
}

bool smelt_instance::finish(uint32_t wave) {
    const auto &span = spans_[wave];
    if (nanoseconds_ != nullptr) { // waves hold one dispatch
        uint64_t now = nanosecondsNow();
        nanoseconds_[items_[span.first_item].dispatch] += now - wave_began_;
        wave_began_ = now;
    }
    if (failed_.load(std::memory_order_relaxed)) {
        return false;
    }
    for (uint32_t i = span.first_item; i < span.first_item + span.item_count; i++) {
        const auto &item = items_[i];
        if (item.last) {
            auto &k = kernels_[executable_.dispatches[first_dispatch_ + item.dispatch].kernel];
            counts_->dispatches++;
            counts_->rearranged += launches_[first_dispatch_ + item.dispatch].interleaved != 0;
            k.dispatches++;
            k.native += item.native != nullptr;
        }
    }
    if (wave + 1 == wave_count_) {
        return true;
    }
    return !stopBefore(wave + 1);
}

// stopBefore counts the barriers and command buffers before a wave, and returns whether a cancelled
// step stops there: before a command buffer, or before any wave if the step has none.
bool smelt_instance::stopBefore(uint32_t wave) {
    const auto &span = spans_[wave];
    if ((whole_ || span.command_buffers != 0) && cancel.load(std::memory_order_relaxed) != 0) {
        cancelled_ = true;
        return true;
    }
    counts_->barriers += span.barriers;
    counts_->command_buffers += span.command_buffers;
    return false;
}
