// Threads that work through a step: a list of waves, each a number of chunks that
// any thread may run in any order, where a wave begins when the one before it is
// done.
#ifndef SMELT_METAL_POOL_H
#define SMELT_METAL_POOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace smelt {

// A wave is done when all its chunks are, whoever ran them: no thread waits for
// one that the system has not scheduled.
struct Wave {
    alignas(64) std::atomic<uint32_t> next{0}; // chunk to hand out
    uint32_t chunks = 0;                       // at least 1
    alignas(64) std::atomic<uint32_t> done{0};

    void reset(uint32_t n) {
        next.store(0, std::memory_order_relaxed);
        done.store(0, std::memory_order_relaxed);
        chunks = n;
    }
};

// What the waves stand for. cursor is zero when a thread begins with a wave, and
// the thread's to use until it leaves it; the chunks that one thread gets ascend.
class Work {
public:
    virtual void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) = 0;
    // finish is called once when a wave is done, before the next begins; false
    // leaves out the rest.
    virtual bool finish(uint32_t wave) = 0;

protected:
    ~Work() = default;
};

class Pool {
public:
    // The thread that calls run works too, so threads - 1 are started. Throws
    // std::system_error if one cannot be.
    explicit Pool(unsigned threads);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

    // run returns when the waves are done. One call at a time.
    void run(Work &work, Wave *waves, uint32_t count);

private:
    void worker(unsigned index);
    void stop();
    void participate(uint32_t wave);
    void advance(uint32_t to, bool wake_workers, bool wake_caller);
    bool spin(uint32_t old) const;
    uint32_t sleep(uint32_t old, bool caller);

    // tick_ counts the waves finished over the pool's life, and one more for each
    // run: the only thing that threads wait on.
    alignas(64) std::atomic<uint32_t> tick_{0};
    alignas(64) std::atomic<uint32_t> inside_{0}; // workers that may touch the fields of the run
    alignas(64) std::atomic<bool> open_{false};   // a run is under way
    std::atomic<bool> closing_{false};

    Work *work_ = nullptr;
    Wave *waves_ = nullptr;
    uint32_t count_ = 0;
    uint32_t first_ = 0; // tick_ during wave 0

    std::atomic<uint32_t> workers_asleep_{0}, caller_asleep_{0};
    std::mutex mutex_;
    std::condition_variable workers_wake_, caller_wakes_;
    std::vector<std::thread> workers_;
};

} // namespace smelt

#endif
