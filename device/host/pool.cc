//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "pool.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include <pthread.h>
#include <sys/resource.h>

namespace smelt {

namespace {

using Clock = std::chrono::steady_clock;

// An idle thread polls for this long before it sleeps. While a model decodes, the next wave and the
// next token come sooner: a processor that has slept reads memory at least a tenth slower, for tens
// of milliseconds. A thread that waits for a preempted one thus soon frees its own processor.
constexpr auto spin_time = std::chrono::milliseconds(1);

// Without preemption for this long, a thread stops yielding.
constexpr auto alone_time = std::chrono::milliseconds(200);

// Another process that takes the processor keeps it for longer than this.
constexpr auto visit_time = std::chrono::microseconds(300);

#ifdef __linux__
// A thread counts as preempted if its CPU time lacks this much of the elapsed time.
constexpr auto away_time = std::chrono::milliseconds(1);

Clock::duration duration(const timeval &t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
}
#endif

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

} // namespace

// away_time excludes interrupts of the system itself, which last microseconds.
void Turn::ask() {
#ifdef __linux__
    rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0) {
        return;
    }
    auto now = Clock::now();
    auto ran = duration(usage.ru_utime) + duration(usage.ru_stime);
    bool interrupted = usage.ru_nivcsw != interruptions_, away = now - asked_ - (ran - ran_) >= away_time;
    // Different threads may call a pool.
    if (bool same = std::exchange(thread_, pthread_self()) == pthread_self(); same && interrupted && away) {
        others_ = now;
        if (!shared_) {
            shared_ = true;
            began_ = now;
        }
    }
    asked_ = now, ran_ = ran, interruptions_ = usage.ru_nivcsw;
#endif
}

void Turn::giveWay() {
    auto before = Clock::now();
    std::this_thread::yield();
    began_ = Clock::now();
    if (began_ - before > visit_time) {
        others_ = began_;
    } else if (began_ - others_ > alone_time) {
        shared_ = false;
    }
}

Pool::Pool(Nodes nodes) : nodes_(std::move(nodes)) {
    SignalsBlocked blocked;
    workers_.reserve(threads());
    try {
        for (unsigned i = 1; i < threads(); i++) {
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
    Kept kept(nodes_, 0);
    uint32_t now = tick_.load(std::memory_order_relaxed) + 1;
    work_ = &work;
    waves_ = waves;
    count_ = count;
    first_ = now;
    open_.store(true);
    advance(now, true, false);
    while (now - first_ < count) {
        participate(now - first_, 0, turn_);
        if (turn_.over()) {
            turn_.giveWay();
            now = tick_.load();
        } else {
            now = spin(now) ? tick_.load() : sleep(now, true);
        }
    }
    // A worker that read open_ before this store has counted itself in.
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
    nodes_.keep(index);
    Turn turn;
    uint32_t seen = 0;
    for (;;) {
        if (!spin(seen)) {
            sleep(seen, false);
        }
        // In this order: a wait for a tick read after the pool was closed would never end.
        seen = tick_.load();
        if (closing_.load()) {
            return;
        }
        inside_.fetch_add(1);
        if (open_.load()) {
            for (seen = tick_.load(); seen - first_ < count_; seen = tick_.load()) {
                participate(seen - first_, index, turn);
                // A thread that is idle for long leaves, so that the end of the run does not wait
                // for it.
                if (turn.shared() || !spin(seen)) {
                    break;
                }
            }
        }
        inside_.fetch_sub(1);
        if (turn.over()) {
            turn.giveWay();
            seen--; // the wave may not be done
        }
    }
}

void Pool::participate(uint32_t wave, unsigned thread, Turn &turn) {
    Wave &w = waves_[wave];
    uint32_t cursor = 0, mine = 0, chunk;
    turn.look();
    while (!turn.over() && w.take(thread, chunk)) {
        work_->run(wave, chunk, cursor);
        mine++;
    }
    if (mine == 0 || w.done.fetch_add(mine, std::memory_order_acq_rel) + mine != w.chunks) {
        return;
    }
    uint32_t next = work_->finish(wave) ? wave + 1 : count_;
    bool over = next >= count_;
    // This thread runs a wave of one chunk itself.
    bool parallel = !over && waves_[next].chunks > 1;
    advance(first_ + next, parallel, parallel || over);
}

// advance publishes the number of the next wave, and with it all earlier writes.
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
