// A program for sanitizers: pools that are made, used and dropped; runs of waves
// whose results are known; runs that end early. Exits with 0 if all is right.
#include "pool.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Sums final : smelt::Work {
    std::vector<uint64_t> cells; // wave w writes cell c of row w from row w - 1
    uint32_t width, stop_after;
    uint32_t finished = 0; // written by one thread at a time, unguarded

    Sums(uint32_t waves, uint32_t width, uint32_t stop)
        : cells((waves + 1) * width, 1), width(width), stop_after(stop) {}

    void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) override {
        cursor++;
        const uint64_t *before = cells.data() + wave * width;
        uint64_t sum = 0;
        for (uint32_t i = 0; i < width; i++) {
            sum += before[i];
        }
        cells[(wave + 1) * width + chunk] = sum % 1000003 + chunk;
    }

    bool finish(uint32_t wave) override {
        if (wave != finished) {
            puts("waves end out of order");
            exit(1);
        }
        return ++finished != stop_after;
    }
};

void check(smelt::Pool &pool, uint32_t waves, uint32_t width, uint32_t stop) {
    Sums work(waves, width, stop);
    std::vector<smelt::Wave> list(waves);
    for (auto &w : list) {
        w.reset(width, pool.nodes());
    }
    pool.run(work, list.data(), waves);
    uint32_t ran = stop == 0 ? waves : stop;
    Sums want(waves, width, 0);
    for (uint32_t w = 0; w < ran; w++) {
        for (uint32_t c = 0; c < width; c++) {
            uint32_t cursor = 0;
            want.run(w, c, cursor);
        }
    }
    if (work.finished != ran || work.cells != want.cells) {
        printf("%u threads, %u waves of %u: wrong\n", pool.threads(), waves, width);
        exit(1);
    }
}

} // namespace

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (unsigned threads : {1u, 2u, 3u, 7u, 20u}) {
        // Nodes that this machine need not have, and threads that keep to one processor.
        const unsigned long first = 1;
        std::vector<smelt_place> places;
        for (unsigned i = 0; i < threads; i++) {
            places.push_back({i > threads / 3 ? 1u : 0u, i % 2, &first});
        }
        smelt::Pool pool(smelt::Nodes(threads, places.data()));
        smelt::Pool other(2); // idle beside it
        for (int i = 0; i < (threads > 7 ? rounds / 4 : rounds); i++) {
            check(pool, 1 + i % 50, 1 + (i * 7) % 33, 0);
            check(pool, 40, 1, 0);
            check(pool, 40, 9, 1 + i % 40);
            if (i % 8 == 0) { // let the workers fall asleep
                std::this_thread::sleep_for(std::chrono::microseconds(300));
            }
        }
    }
    for (int i = 0; i < rounds; i++) { // dropped while the workers may still be starting
        smelt::Pool pool(3);
        if (i % 2 != 0) {
            check(pool, 3, 5, 0);
        }
    }
    return 0;
}
