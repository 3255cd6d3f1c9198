// Threads that work through a step: a list of waves, each a number of chunks that
// any thread may run in any order, where a wave begins when the one before it is
// done.
//
// Each thread has a share of a wave, chunks that follow one another: neighbours are
// mostly neighbours in memory too, so that what a kernel fetches ahead of the chunk it
// works on is its own. Who is done takes from the ends of others' shares.
#ifndef SMELT_METAL_POOL_H
#define SMELT_METAL_POOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>

namespace smelt {

// Chunks that are yet to be handed out, from both ends.
class alignas(64) Share {
public:
    void reset(uint32_t begin, uint32_t end) { left_.store(uint64_t{end} << 32 | begin, std::memory_order_relaxed); }
    bool takeFirst(uint32_t &chunk) { return take(chunk, true); }
    bool takeLast(uint32_t &chunk) { return take(chunk, false); }

private:
    bool take(uint32_t &chunk, bool first) {
        uint64_t left = left_.load(std::memory_order_relaxed);
        for (;;) {
            auto begin = static_cast<uint32_t>(left), end = static_cast<uint32_t>(left >> 32);
            if (begin >= end) {
                return false;
            }
            chunk = first ? begin++ : --end;
            if (left_.compare_exchange_weak(left, uint64_t{end} << 32 | begin, std::memory_order_relaxed)) {
                return true;
            }
        }
    }
    std::atomic<uint64_t> left_{0}; // end, begin
};

// A wave is done when all its chunks are, whoever ran them: no thread waits for
// one that the system has not scheduled.
class Wave {
public:
    // Shared out among so many threads; memory is only taken when there are more of them
    // than before.
    void reset(uint32_t chunks, unsigned threads) {
        if (threads > threads_) {
            shares_.reset(new Share[threads]);
        }
        threads_ = threads;
        for (unsigned i = 0; i < threads_; i++) {
            shares_[i].reset(part(chunks, i), part(chunks, i + 1));
        }
        done.store(0, std::memory_order_relaxed);
        this->chunks = chunks;
    }
    // A chunk for a thread: the next of its own, or else another's last.
    bool take(unsigned thread, uint32_t &chunk) {
        if (thread < threads_ && shares_[thread].takeFirst(chunk)) {
            return true;
        }
        for (unsigned i = 1; i <= threads_; i++) {
            if (shares_[(thread + i) % threads_].takeLast(chunk)) {
                return true;
            }
        }
        return false;
    }

    uint32_t chunks = 0; // at least 1
    alignas(64) std::atomic<uint32_t> done{0};

private:
    uint32_t part(uint32_t chunks, unsigned i) const { return static_cast<uint32_t>(uint64_t{chunks} * i / threads_); }

    std::unique_ptr<Share[]> shares_;
    unsigned threads_ = 0;
};

// What the waves stand for. cursor is zero when a thread begins with a wave, and
// the thread's to use until it leaves it.
class Work {
public:
    virtual void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) = 0;
    // finish is called once when a wave is done, before the next begins; false
    // leaves out the rest.
    virtual bool finish(uint32_t wave) = 0;

protected:
    ~Work() = default;
};

// While it lives, threads that are started take no signals: those are Go's.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
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
    void participate(uint32_t wave, unsigned thread);
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
