//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "rearranged.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"

namespace smelt {

namespace {

// Rearranged at a time: what a thread that is told to stop still finishes.
constexpr uint64_t piece_bytes = 4 << 20;

} // namespace

Rearranged::Rearranged(const smelt_device_options &options, std::vector<Source> sources)
    : native_(*options.native), mapped_(options.mapped != 0), sources_(std::move(sources)), ready_(sources_.size()) {
    std::vector<uint64_t> offsets;
    for (size_t i = 0; i < sources_.size(); i++) {
        const auto &m = sources_[i].matrix;
        if (sources_[i].memory == nullptr) {
            continue;
        }
        uint32_t group = native_.interleave(m.type, m.columns, nullptr, 0, nullptr);
        if (group == 0 || m.rows < group || (m.stack > 1 && m.rows / m.stack % group != 0)) {
            continue;
        }
        jobs_.push_back({static_cast<uint32_t>(i), group, nullptr});
        offsets.push_back(bytes_);
        bytes_ += (native_.interleaved_bytes(m.type, m.columns, m.rows) + 63) / 64 * 64;
    }
    if (jobs_.empty()) {
        return;
    }
    void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        jobs_.clear();
        return;
    }
    memory_ = memory;
#ifdef MADV_HUGEPAGE
    madvise(memory_, bytes_, MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < jobs_.size(); i++) {
        jobs_[i].to = static_cast<uint8_t *>(memory_) + offsets[i];
    }
    if (options.rearrange == SMELT_REARRANGE_NOW) {
        for (const auto &job : jobs_) {
            rearrange(job);
        }
        return;
    }
    try {
        SignalsBlocked blocked;
        thread_ = std::thread(&Rearranged::work, this);
        waits_.store(true);
    } catch (const std::system_error &) {
        // Without a thread the file's rows serve as well, only slower.
    }
}

Rearranged::~Rearranged() {
    if (thread_.joinable()) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
    if (memory_ != nullptr) {
        munmap(memory_, bytes_);
    }
}

void Rearranged::next() {
    std::lock_guard<std::mutex> lock(mutex_);
    waits_.store(false);
    if (!done_) {
        begin_ = true;
        wake_.notify_one();
        return;
    }
    busy_.store(false);
    // The step that has just ended may have read the last pages once more.
    for (const auto &job : jobs_) {
        drop(sources_[job.buffer].memory, sources_[job.buffer].bytes);
    }
}

void Rearranged::work() {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return begin_ || stop_; });
        if (stop_) {
            return;
        }
    }
    busy_.store(true);
    for (const auto &job : jobs_) {
        if (!rearrange(job)) {
            return;
        }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    waits_.store(true);
}

// rearrange returns false if it was told to stop.
bool Rearranged::rearrange(const Job &job) {
    const auto &source = sources_[job.buffer];
    const auto &m = source.matrix;
    uint64_t row = source.bytes / m.rows, step = std::max<uint64_t>(1, piece_bytes / row / job.group) * job.group;
    for (uint64_t r = 0; r < m.rows; r += step) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (stop_) {
                return false;
            }
        }
        uint64_t rows = std::min(step, m.rows - r);
        uint8_t *to = job.to + native_.interleaved_bytes(m.type, m.columns, r);
        native_.interleave(m.type, m.columns, source.memory + r * row, rows, to);
        drop(source.memory + r * row, rows * row);
    }
    ready_[job.buffer].store(job.to, std::memory_order_release);
    drop(source.memory, source.bytes); // what dispatches have read meanwhile
    return true;
}

// drop gives back the pages that lie wholly inside.
void Rearranged::drop(const uint8_t *from, uint64_t bytes) const {
    if (!mapped_) {
        return;
    }
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto begin = (reinterpret_cast<uintptr_t>(from) + page - 1) / page * page;
    auto end = (reinterpret_cast<uintptr_t>(from) + bytes) / page * page;
    if (begin < end) {
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
    }
}

} // namespace smelt
