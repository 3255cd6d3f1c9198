// Weights in the order that the native kernels read fastest, in memory of their own.
#ifndef SMELT_METAL_REARRANGED_H
#define SMELT_METAL_REARRANGED_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "metal/provider/device.h"

namespace smelt {

// A thread of its own rearranges one matrix after the other, once a step has run: the
// first is not slowed down, and none ever waits. A dispatch uses what is ready when it
// begins. Copies lie in one mapping with large pages, which are a tenth faster to
// stream through than those of a file. The file's pages are dropped piece by piece, so
// that weights are held once; what still reads them gets them again.
class Rearranged {
public:
    struct Source {
        const uint8_t *memory = nullptr; // null: not to be rearranged
        uint64_t bytes = 0;
        smelt_matrix matrix{};
    };

    // By buffer of the Plan. Without memory for the copies, none are made.
    Rearranged(const smelt_device_options &options, std::vector<Source> sources);
    ~Rearranged();
    Rearranged(const Rearranged &) = delete;
    Rearranged &operator=(const Rearranged &) = delete;

    // at returns the copy of a buffer if it is ready.
    const uint8_t *at(uint32_t buffer) const { return ready_[buffer].load(std::memory_order_acquire); }
    // busy tells whether matrices become ready during the step under way.
    bool busy() const { return busy_.load(std::memory_order_relaxed); }
    // stepDone is called after each step.
    void stepDone() {
        if (waits_.load(std::memory_order_relaxed)) {
            next();
        }
    }

private:
    struct Job {
        uint32_t buffer;
        uint32_t group; // rows that are rearranged together
        uint8_t *to;
    };

    void next();
    void work();
    bool rearrange(const Job &job);
    void drop(const uint8_t *from, uint64_t bytes) const;

    const smelt_native &native_;
    bool mapped_;
    std::vector<Source> sources_;
    std::vector<std::atomic<const uint8_t *>> ready_;
    std::vector<Job> jobs_;
    void *memory_ = nullptr;
    uint64_t bytes_ = 0;

    std::atomic<bool> busy_{false};
    std::atomic<bool> waits_{false}; // for the end of a step: to begin, or to drop what it read
    std::mutex mutex_;
    std::condition_variable wake_;
    bool begin_ = false, stop_ = false, done_ = false;
    std::thread thread_;
};

} // namespace smelt

#endif
