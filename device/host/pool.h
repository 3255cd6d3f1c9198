// A work-stealing thread pool. A step is a list of waves, each a number of chunks that any thread
// may run in any order; a wave begins when the one before it is done.
//
// Each thread owns a share of a wave, consecutive chunks: these are mostly adjacent in memory, so
// that a thread uses what its kernels prefetch. A thread without chunks steals from the ends of
// other shares, first of those on its memory node.
#ifndef SMELT_METAL_POOL_H
#define SMELT_METAL_POOL_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>

#include "nodes.h"

namespace smelt {

// Chunks of a wave per thread: fine enough that threads end together, coarse enough that handing
// out chunks costs nothing.
constexpr uint32_t chunks_per_thread = 8;

// A thread's chunks that are not handed out yet; they are taken from both ends.
class alignas(64) Share {
public:
    void reset(uint32_t begin, uint32_t end) { left_.store(uint64_t{end} << 32 | begin, std::memory_order_relaxed); }
    bool takeFirst(uint32_t &chunk) { return take(chunk, true); }
    bool takeLast(uint32_t &chunk) { return take(chunk, false); }

    unsigned first_peer = 0, peers = 0; // threads of the same node

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

// A wave is done when all its chunks are, whichever threads ran them, so that none waits for a
// thread that the system has not scheduled.
class Wave {
public:
    // Distributes chunks over the threads of nodes, to each node its part.
    void reset(uint32_t chunks, const Nodes &nodes) {
        share(nodes, [&](size_t n) {
            Range part = nodes.part(n, chunks);
            return static_cast<uint32_t>(part.end - part.begin);
        });
    }
    // The same, with the number of chunks of each node.
    void reset(const uint32_t *chunks, const Nodes &nodes) {
        share(nodes, [&](size_t n) { return chunks[n]; });
    }
    // Takes a chunk for a thread: the next of its own share, else the last of another.
    bool take(unsigned thread, uint32_t &chunk) {
        Share &own = shares_[thread];
        return own.takeFirst(chunk) || takeFrom(own.first_peer, own.peers, thread - own.first_peer, chunk) ||
               (own.peers != threads_ && takeFrom(0, threads_, thread, chunk));
    }

    uint32_t chunks = 0; // at least 1
    alignas(64) std::atomic<uint32_t> done{0};

private:
    // share distributes count(node) chunks over each node's threads. It allocates only if there
    // are more threads than before.
    template <typename F> void share(const Nodes &nodes, F count) {
        if (nodes.threads() > threads_) {
            shares_.reset(new Share[nodes.threads()]);
        }
        threads_ = nodes.threads();
        uint32_t first = 0;
        for (size_t n = 0; n < nodes.count(); n++) {
            const Node &node = nodes[n];
            uint32_t all = count(n);
            const auto part = [&](unsigned i) {
                return first + static_cast<uint32_t>(uint64_t{all} * i / node.threads);
            };
            for (unsigned i = 0; i < node.threads; i++) {
                Share &share = shares_[node.first + i];
                share.reset(part(i), part(i + 1));
                share.first_peer = node.first, share.peers = node.threads;
            }
            first += all;
        }
        done.store(0, std::memory_order_relaxed);
        chunks = first;
    }
    // takeFrom steals from one of count shares, in turn from the one after `at`.
    bool takeFrom(unsigned first, unsigned count, unsigned at, uint32_t &chunk) {
        for (unsigned i = 1; i <= count; i++) {
            if (shares_[first + (at + i) % count].takeLast(chunk)) {
                return true;
            }
        }
        return false;
    }

    std::unique_ptr<Share[]> shares_;
    unsigned threads_ = 0;
};

// The work of the waves. cursor is a variable of the thread, zero when it begins a wave, for run's
// use.
class Work {
public:
    virtual void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) = 0;
    // finish is called once when a wave is done, before the next begins; false skips the other
    // waves.
    virtual bool finish(uint32_t wave) = 0;

protected:
    ~Work() = default;
};

// Blocks all signals in threads that are started while it lives: they are for Go's threads.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        sigdelset(&all, SIGBUS); // of a file that was cut short: blocked, it would end the process
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

// The time slice of a thread.
//
// A thread that the system preempts for another process holds a chunk, and all threads wait for it,
// for milliseconds each time: with one busy process a pool of two had 0.4 of its speed. So a thread
// that was preempted yields from then on, between two chunks and before its time slice ends, and
// other threads do its work meanwhile.
class Turn {
public:
    // look is called with each wave, and detects preemption.
    void look() {
        if (++waves_ % waves_between_looks == 0) {
            ask();
        }
    }
    // shared returns whether other processes want the processor, and over whether to yield now.
    bool shared() const { return shared_; }
    bool over() const { return shared_ && Clock::now() - began_ >= length; }
    // giveWay yields the processor.
    void giveWay();

private:
    using Clock = std::chrono::steady_clock;

    // Shorter than Linux's time slice while another thread waits.
    static constexpr auto length = std::chrono::milliseconds(2);

    // A wave may last microseconds, as long as a call of ask.
    static constexpr uint32_t waves_between_looks = 128;

    void ask();

    uint32_t waves_ = 0;
    bool shared_ = false;
    Clock::time_point began_{}, others_{}; // others_: of the last preemption

#ifdef __linux__
    // At the last call of ask: its thread, and that thread's CPU time and involuntary context
    // switches.
    pthread_t thread_{};
    Clock::time_point asked_{};
    Clock::duration ran_{};
    long interruptions_ = 0;
#endif
};

class Pool {
public:
    // Starts threads - 1 threads, as the one that calls run works too, as the first. Throws
    // std::system_error if a thread cannot be started.
    explicit Pool(Nodes nodes);
    explicit Pool(unsigned threads) : Pool(Nodes(threads)) {}
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    unsigned threads() const { return nodes_.threads(); }
    const Nodes &nodes() const { return nodes_; }

    // run returns when the waves, reset for the pool's nodes, are done. One call at a time.
    void run(Work &work, Wave *waves, uint32_t count);

private:
    void worker(unsigned index);
    void stop();
    void participate(uint32_t wave, unsigned thread, Turn &turn);
    void advance(uint32_t to, bool wake_workers, bool wake_caller);
    bool spin(uint32_t old) const;
    uint32_t sleep(uint32_t old, bool caller);

    const Nodes nodes_;

    // tick_ counts the waves finished over the pool's life, plus one for each run. It is the only
    // variable that threads wait on.
    alignas(64) std::atomic<uint32_t> tick_{0};
    alignas(64) std::atomic<uint32_t> inside_{0}; // workers that may touch the fields of the run
    alignas(64) std::atomic<bool> open_{false};   // a run is in progress
    std::atomic<bool> closing_{false};

    Work *work_ = nullptr;
    Wave *waves_ = nullptr;
    uint32_t count_ = 0;
    uint32_t first_ = 0; // tick_ during wave 0

    Turn turn_; // of the thread that calls run

    std::atomic<uint32_t> workers_asleep_{0}, caller_asleep_{0};
    std::mutex mutex_;
    std::condition_variable workers_wake_, caller_wakes_;
    std::vector<std::thread> workers_;
};

} // namespace smelt

#endif
