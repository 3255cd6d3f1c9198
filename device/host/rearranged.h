// Weights in the order that the native kernels read fastest, in memory of their own.
#ifndef SMELT_METAL_REARRANGED_H
#define SMELT_METAL_REARRANGED_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "device/provider/device.h"
#include "pool.h"

namespace smelt {

// The first step is not slowed down. Before each later step, all threads rearrange some matrices
// for as long as the step before took, and not much more than a tenth of a second, so that
// decoding has at least half its speed until all is done. While no step runs, a background thread
// goes on; during a step it would preempt a thread of the pool, which all others wait for many
// times per token. A step uses the copies that are ready when it begins.
//
// The copies are in one mapping with large pages, which stream a tenth faster than those of a file,
// each row in the memory of the node whose threads read it. The file's pages are dropped as they
// are copied, so that weights are held once; later reads of them fault them in again.
class Rearranged final : Work {
public:
    struct Source {
        const uint8_t *memory = nullptr; // null: not to be rearranged
        uint64_t bytes = 0;
        smelt_matrix matrix{};
        // With several memory nodes: the units that read it, and the units of that launch.
        smelt_units readers{};
        uint64_t units = 0;
    };

    // sources are by buffer of the Plan. Without memory for the copies, none are made. Callers must
    // not be running the pool.
    Rearranged(const smelt_device_options &options, Pool &pool, std::vector<Source> sources);
    ~Rearranged();
    Rearranged(const Rearranged &) = delete;
    Rearranged &operator=(const Rearranged &) = delete;

    // at returns the copy of a buffer if it is ready, else null.
    const uint8_t *at(uint32_t buffer) const { return ready_[buffer].load(std::memory_order_acquire); }
    // before is called before a step looks for copies, and after when it has run or is rejected.
    void before() {
        if (pending_) {
            begin();
        }
    }
    void after() {
        if (pending_) {
            end();
        }
    }
    // Calls before and after around a step; of may be null.
    class Pause {
    public:
        explicit Pause(Rearranged *of) : of_(of) {
            if (of_ != nullptr) {
                of_->before();
            }
        }
        ~Pause() {
            if (of_ != nullptr) {
                of_->after();
            }
        }
        Pause(const Pause &) = delete;
        Pause &operator=(const Pause &) = delete;

    private:
        Rearranged *of_;
    };

private:
    using Clock = std::chrono::steady_clock;

    struct Job {
        uint32_t buffer;
        uint32_t group; // rows that are rearranged together
        uint8_t *to;
        uint32_t left; // pieces
    };
    // The rows that a thread takes at a time.
    struct Piece {
        uint32_t job;
        uint64_t row, rows;
    };

    void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) override;
    bool finish(uint32_t) override { return true; }

    void place(const Job &job) const;
    void begin();
    void end();
    void matrix();
    void rest();
    void copy(const Piece &piece) const;
    void done(size_t first, size_t end);
    void drop(const uint8_t *from, uint64_t bytes) const;

    const smelt_native &native_;
    bool mapped_;
    Pool &pool_;
    std::vector<Source> sources_;
    std::vector<std::atomic<const uint8_t *>> ready_;
    std::vector<Job> jobs_;
    std::vector<Piece> pieces_; // by job
    void *memory_ = nullptr;
    uint64_t bytes_ = 0;

    Wave wave_;
    size_t first_ = 0; // piece of the wave

    // Of the thread that runs steps.
    bool pending_ = false; // before or after has something to do
    Clock::time_point began_{};
    Clock::duration took_{};

    std::mutex mutex_; // guards what follows, and left of jobs
    std::condition_variable wake_;
    size_t next_ = 0, copied_ = 0; // pieces
    uint64_t steps_ = 0;           // that have ended
    bool running_ = false, stop_ = false;
    std::thread thread_;
};

} // namespace smelt

#endif
