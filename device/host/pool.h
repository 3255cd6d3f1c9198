// Threads that work through a step: a list of waves, each a number of chunks that
// any thread may run in any order, where a wave begins when the one before it is
// done.
//
// Each thread has a share of a wave, chunks that follow one another: neighbours are
// mostly neighbours in memory too, so that what a kernel fetches ahead of the chunk it
// works on is its own. Who is done takes from the ends of others' shares, first of those on
// its memory node.
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

// How finely work is cut, for each thread: fine enough that threads end together, coarse enough
// that handing out costs nothing.
constexpr uint32_t chunks_per_thread = 8;

// Chunks that are yet to be handed out, from both ends.
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

// A wave is done when all its chunks are, whoever ran them: no thread waits for
// one that the system has not scheduled.
class Wave {
public:
    // Shared out among the threads of nodes, each of which has its part of so many chunks.
    void reset(uint32_t chunks, const Nodes &nodes) {
        share(nodes, [&](size_t n) {
            Range part = nodes.part(n, chunks);
            return static_cast<uint32_t>(part.end - part.begin);
        });
    }
    // The same where it is told how many chunks each node has.
    void reset(const uint32_t *chunks, const Nodes &nodes) {
        share(nodes, [&](size_t n) { return chunks[n]; });
    }
    // A chunk for a thread: the next of its own, or else another's last.
    bool take(unsigned thread, uint32_t &chunk) {
        Share &own = shares_[thread];
        return own.takeFirst(chunk) || takeFrom(own.first_peer, own.peers, thread - own.first_peer, chunk) ||
               (own.peers != threads_ && takeFrom(0, threads_, thread, chunk));
    }

    uint32_t chunks = 0; // at least 1
    alignas(64) std::atomic<uint32_t> done{0};

private:
    // share gives each node's threads their parts of as many chunks as count says. Memory is only
    // taken when there are more threads than before.
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
    // takeFrom looks at so many shares, those behind `at` first.
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

// The time that a thread works before somebody else gets its processor.
//
// Whom the system sets aside for a neighbour keeps what it has of a wave, and all threads wait
// for it, milliseconds again and again: with one busy neighbour a pool of two had 0.4 of its speed.
// So a thread that was set aside gives way from then on, between two chunks and before its time
// is up, and the others do its work meanwhile.
class Turn {
public:
    // look, called with each wave, notices in time that the thread was set aside.
    void look() {
        if (++waves_ % waves_between_looks == 0) {
            ask();
        }
    }
    // shared tells whether others want the processor, and over whether they should have it now.
    bool shared() const { return shared_; }
    bool over() const { return shared_ && Clock::now() - began_ >= length; }
    // giveWay lets others run, if there are any.
    void giveWay();

private:
    using Clock = std::chrono::steady_clock;

    // Less than what Linux lets a thread run while another waits.
    static constexpr auto length = std::chrono::milliseconds(2);

    // A wave may last no more than microseconds, which asking takes as well.
    static constexpr uint32_t waves_between_looks = 128;

    void ask();

    uint32_t waves_ = 0;
    bool shared_ = false;
    Clock::time_point began_{}, others_{}; // others_: when a neighbour was last seen

#ifdef __linux__
    // When the system was asked last: by whom, how long that thread had run, and how often it had
    // been interrupted.
    pthread_t thread_{};
    Clock::time_point asked_{};
    Clock::duration ran_{};
    long interruptions_ = 0;
#endif
};

class Pool {
public:
    // The thread that calls run works too, as the first, so threads - 1 are started. Throws
    // std::system_error if one cannot be.
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

    Turn turn_; // of who calls run

    std::atomic<uint32_t> workers_asleep_{0}, caller_asleep_{0};
    std::mutex mutex_;
    std::condition_variable workers_wake_, caller_wakes_;
    std::vector<std::thread> workers_;
};

} // namespace smelt

#endif
