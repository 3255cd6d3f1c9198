//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "pool.h"

#include <chrono>
#include <cstdio>

#include <pthread.h>

namespace smelt {

namespace {

using Clock = std::chrono::steady_clock;

// A thread with nothing to do polls for so long before it sleeps. While a model decodes, the
// next wave comes sooner, and the next token as well: a processor that has slept reads memory
// by a tenth and more slower, for tens of milliseconds. A thread that waits for one which the
// system has set aside gives up its own processor in time.
constexpr auto spin_time = std::chrono::milliseconds(1);

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

} // namespace

Pool::Pool(unsigned threads) {
    SignalsBlocked blocked;
    workers_.reserve(threads);
    try {
        for (unsigned i = 1; i < threads; i++) {
            workers_.emplace_back(&Pool::worker, this, i);
        }
    } catch (...) {
        stop();
        throw;
    }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_.store(true);
        tick_.fetch_add(1); // ends spinning
    }
    workers_wake_.notify_all();
    for (auto &w : workers_) {
        w.join();
    }
}

void Pool::run(Work &work, Wave *waves, uint32_t count) {
    if (count == 0) {
        return;
    }
    uint32_t now = tick_.load(std::memory_order_relaxed) + 1;
    work_ = &work;
    waves_ = waves;
    count_ = count;
    first_ = now;
    open_.store(true);
    advance(now, true, false);
    while (now - first_ < count) {
        participate(now - first_, 0);
        now = spin(now) ? tick_.load() : sleep(now, true);
    }
    // Who read open_ before this store has counted itself in.
    open_.store(false);
    for (unsigned polls = 0; inside_.load() != 0; polls++) {
        if (polls < 1000) {
            pause();
        } else {
            std::this_thread::yield();
        }
    }
}

void Pool::worker(unsigned index) {
    char name[16];
    snprintf(name, sizeof name, "smelt-%u", index);
#ifdef __APPLE__
    pthread_setname_np(name);
#else
    pthread_setname_np(pthread_self(), name);
#endif
    uint32_t seen = 0;
    for (;;) {
        if (!spin(seen)) {
            sleep(seen, false);
        }
        // In this order: a tick taken after the pool was closed would be waited for in vain.
        seen = tick_.load();
        if (closing_.load()) {
            return;
        }
        inside_.fetch_add(1);
        if (open_.load()) {
            for (seen = tick_.load(); seen - first_ < count_; seen = tick_.load()) {
                participate(seen - first_, index);
                if (!spin(seen)) {
                    break; // sleep outside, where the end of the run does not wait for this thread
                }
            }
        }
        inside_.fetch_sub(1);
    }
}

void Pool::participate(uint32_t wave, unsigned thread) {
    Wave &w = waves_[wave];
    uint32_t cursor = 0, mine = 0, chunk;
    while (w.take(thread, chunk)) {
        work_->run(wave, chunk, cursor);
        mine++;
    }
    if (mine == 0 || w.done.fetch_add(mine, std::memory_order_acq_rel) + mine != w.chunks) {
        return;
    }
    uint32_t next = work_->finish(wave) ? wave + 1 : count_;
    bool over = next >= count_;
    // A wave of one chunk is for the thread that is here already.
    bool parallel = !over && waves_[next].chunks > 1;
    advance(first_ + next, parallel, parallel || over);
}

// advance publishes the number of the next wave, and with it all that was written
// before.
void Pool::advance(uint32_t to, bool wake_workers, bool wake_caller) {
    tick_.store(to);
    // A thread counts itself asleep before it looks at tick_ for the last time,
    // so either it sees the store or this sees it.
    wake_workers = wake_workers && workers_asleep_.load() != 0;
    wake_caller = wake_caller && caller_asleep_.load() != 0;
    if (!wake_workers && !wake_caller) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
    }
    if (wake_workers) {
        workers_wake_.notify_all();
    }
    if (wake_caller) {
        caller_wakes_.notify_one();
    }
}

// spin polls until tick_ is no longer old, or time is up.
bool Pool::spin(uint32_t old) const {
    Clock::time_point until{};
    for (;;) {
        for (int i = 0; i < 64; i++) {
            if (tick_.load(std::memory_order_acquire) != old) {
                return true;
            }
            pause();
        }
        auto now = Clock::now();
        if (until == Clock::time_point{}) {
            until = now + spin_time;
        } else if (now >= until) {
            return false;
        }
    }
}

// sleep returns when tick_ is no longer old, with its value.
uint32_t Pool::sleep(uint32_t old, bool caller) {
    auto &count = caller ? caller_asleep_ : workers_asleep_;
    auto &wake = caller ? caller_wakes_ : workers_wake_;
    std::unique_lock<std::mutex> lock(mutex_);
    count.fetch_add(1);
    wake.wait(lock, [&] { return tick_.load() != old; });
    count.fetch_sub(1);
    return tick_.load();
}

} // namespace smelt
