//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "rearranged.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace smelt {

namespace {

// Bytes that a thread copies at a time, for which a step may wait when it begins.
constexpr uint64_t piece_bytes = 1 << 20;

// Bytes copied, and held twice, before the file's pages are dropped. Dropping interrupts every
// processor (TLB shootdown), so it is not done for each piece.
constexpr uint64_t batch_bytes = 32 << 20;

// The maximum delay of a step, unless a matrix takes longer.
constexpr auto longest = std::chrono::milliseconds(250);

// Without a step for this long, the background thread begins.
constexpr auto idle = std::chrono::milliseconds(20);

uint64_t pageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

} // namespace

Rearranged::Rearranged(const smelt_device_options &options, Pool &pool, std::vector<Source> sources)
    : native_(*options.native), mapped_(options.mapped != 0), pool_(pool), sources_(std::move(sources)),
      ready_(sources_.size()) {
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
        uint64_t step = std::max<uint64_t>(1, piece_bytes / (sources_[i].bytes / m.rows) / group) * group;
        auto job = static_cast<uint32_t>(jobs_.size());
        for (uint64_t row = 0; row < m.rows; row += step) {
            pieces_.push_back({job, row, std::min(step, m.rows - row)});
        }
        jobs_.push_back({static_cast<uint32_t>(i), group, nullptr, static_cast<uint32_t>((m.rows + step - 1) / step)});
        offsets.push_back(bytes_);
        bytes_ += (native_.interleaved_bytes(m.type, m.columns, m.rows) + 63) / 64 * 64;
    }
    if (jobs_.empty()) {
        return;
    }
    void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    memory_ = memory;
#ifdef MADV_HUGEPAGE
    madvise(memory_, bytes_, MADV_HUGEPAGE);
#endif
    for (size_t i = 0; i < jobs_.size(); i++) {
        jobs_[i].to = static_cast<uint8_t *>(memory_) + offsets[i];
        if (pool_.nodes().count() > 1) {
            place(jobs_[i]);
        }
    }
    if (options.rearrange == SMELT_REARRANGE_NOW) {
        while (next_ < pieces_.size()) {
            matrix();
        }
        return;
    }
    pending_ = true;
    try {
        SignalsBlocked blocked;
        thread_ = std::thread(&Rearranged::rest, this);
    } catch (const std::system_error &) {
        // Without the thread, matrices are rearranged only before steps.
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

// place allocates the untouched rows of a copy on the nodes that read them; rows that any thread
// may read are interleaved over all nodes. Boundaries between nodes are not rounded to large pages,
// which would move up to 2 MB, of one matrix after the other, to the same side; the boundary's own
// pages are small.
void Rearranged::place(const Job &job) const {
    const auto &nodes = pool_.nodes();
    const auto &source = sources_[job.buffer];
    const auto &m = source.matrix;
    const auto at = [&](uint64_t row) {
        auto address = reinterpret_cast<uintptr_t>(job.to) + native_.interleaved_bytes(m.type, m.columns, row);
        return reinterpret_cast<uint8_t *>((address + pageBytes() / 2) / pageBytes() * pageBytes());
    };
    if (source.readers.count == 0) {
        nodes.spread(at(0), static_cast<uint64_t>(at(m.rows) - at(0)));
        return;
    }
    uint64_t stack = std::max<uint64_t>(1, m.stack), rows = m.rows / stack;
    for (const auto &part : rowsByNode(nodes, rows, job.group, source.readers, source.units)) {
        for (uint64_t i = 0; i < stack; i++) {
            uint8_t *from = at(i * rows + part.begin), *to = at(i * rows + part.end);
            nodes.place(part.node, from, static_cast<uint64_t>(to - from));
        }
    }
}

void Rearranged::begin() {
    bool first;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        running_ = true;
        first = steps_ == 0;
    }
    auto now = Clock::now(), until = now + std::min<Clock::duration>(took_, longest);
    while (!first && now < until && next_ < pieces_.size()) {
        matrix();
        now = Clock::now();
    }
    began_ = now;
}

void Rearranged::end() {
    took_ = Clock::now() - began_;
    bool first;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        running_ = false;
        first = steps_++ == 0;
        pending_ = copied_ < pieces_.size();
    }
    if (first) {
        wake_.notify_one();
    }
    if (!pending_) {
        // A piece may have been finished while the step was reading what it was made of.
        for (const auto &job : jobs_) {
            drop(sources_[job.buffer].memory, sources_[job.buffer].bytes);
        }
    }
}

// matrix rearranges the rest of the next matrix on all threads of the pool.
void Rearranged::matrix() {
    uint32_t job = pieces_[next_].job;
    uint64_t batch = std::max<uint64_t>(pool_.threads(), batch_bytes / piece_bytes);
    while (next_ < pieces_.size() && pieces_[next_].job == job) {
        first_ = next_;
        size_t end = first_ + 1;
        while (end < pieces_.size() && end - first_ < batch && pieces_[end].job == job) {
            end++;
        }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            next_ = end;
        }
        wave_.reset(static_cast<uint32_t>(end - first_), pool_.nodes());
        pool_.run(*this, &wave_, 1);
        done(first_, end);
    }
    const auto &source = sources_[jobs_[job].buffer];
    drop(source.memory, source.bytes); // steps may have faulted pages in meanwhile
}

void Rearranged::run(uint32_t, uint32_t chunk, uint32_t &) { copy(pieces_[first_ + chunk]); }

// rest is the background thread, which works while no step runs.
void Rearranged::rest() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return steps_ != 0 || stop_; });
    while (!stop_ && next_ < pieces_.size()) {
        uint64_t seen = steps_;
        wake_.wait_for(lock, idle, [&] { return stop_; });
        while (!stop_ && !running_ && steps_ == seen && next_ < pieces_.size()) {
            size_t piece = next_++;
            lock.unlock();
            copy(pieces_[piece]);
            done(piece, piece + 1);
            lock.lock();
        }
    }
}

void Rearranged::copy(const Piece &piece) const {
    const Job &job = jobs_[piece.job];
    const auto &source = sources_[job.buffer];
    const auto &m = source.matrix;
    native_.interleave(m.type, m.columns, source.memory + piece.row * (source.bytes / m.rows), piece.rows,
                       job.to + native_.interleaved_bytes(m.type, m.columns, piece.row));
}

// done drops the file's pages of some pieces of one matrix, which is ready with its last piece.
void Rearranged::done(size_t first, size_t end) {
    Job &job = jobs_[pieces_[first].job];
    const auto &source = sources_[job.buffer];
    uint64_t row = source.bytes / source.matrix.rows, from = pieces_[first].row;
    drop(source.memory + from * row, (pieces_[end - 1].row + pieces_[end - 1].rows - from) * row);
    std::lock_guard<std::mutex> lock(mutex_);
    copied_ += end - first;
    job.left -= static_cast<uint32_t>(end - first);
    if (job.left == 0) {
        ready_[job.buffer].store(job.to, std::memory_order_release);
    }
}

// drop releases the pages that are wholly inside.
void Rearranged::drop(const uint8_t *from, uint64_t bytes) const {
    if (!mapped_) {
        return;
    }
    auto page = static_cast<uintptr_t>(pageBytes());
    auto begin = (reinterpret_cast<uintptr_t>(from) + page - 1) / page * page;
    auto end = (reinterpret_cast<uintptr_t>(from) + bytes) / page * page;
    if (begin < end) {
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
    }
}

} // namespace smelt
