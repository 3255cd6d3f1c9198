// A program for sanitizers: matrices of a file that are rearranged while steps run, between them,
// and by nobody any more. A copy that a step finds is whole, and all are there in the end. Exits
// with 0 if all is right.
#include "rearranged.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr uint32_t group = 8;
constexpr uint64_t row_bytes = 1024;

constexpr uint64_t mask = 0x5a5a5a5a5a5a5a5a;

uint32_t interleave(uint32_t, uint64_t, const void *from, uint64_t rows, void *to) {
    const auto *in = static_cast<const uint64_t *>(from);
    auto *out = static_cast<uint64_t *>(to);
    for (uint64_t i = 0; i < rows * row_bytes / 8; i++) {
        out[i] = in[i] ^ mask;
    }
    return group;
}

uint64_t interleavedBytes(uint32_t, uint64_t, uint64_t rows) { return rows * row_bytes; }

constexpr smelt_native native = {"none", nullptr, interleave, interleavedBytes, 0};

// A file of matrices, the second of more bytes than are dropped at a time.
struct Weights {
    std::vector<uint64_t> rows{group, 33 << 10, 2 << 10, 5 * group, 1 << 10};
    uint64_t bytes = 0;
    uint8_t *memory;

    Weights() {
        for (uint64_t n : rows) {
            bytes += n * row_bytes;
        }
        FILE *file = tmpfile();
        std::vector<uint8_t> data(bytes);
        for (uint64_t i = 0; i < bytes; i++) {
            data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
        }
        if (file == nullptr || fwrite(data.data(), 1, bytes, file) != bytes || fflush(file) != 0) {
            perror("temporary file");
            exit(1);
        }
        memory = static_cast<uint8_t *>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fileno(file), 0));
        fclose(file);
    }
    ~Weights() { munmap(memory, bytes); }

    std::vector<smelt::Rearranged::Source> sources() const {
        std::vector<smelt::Rearranged::Source> list(1); // a buffer that is no matrix
        uint8_t *at = memory;
        for (uint64_t n : rows) {
            list.push_back({at, n * row_bytes, {n, row_bytes, 0, 1}});
            at += n * row_bytes;
        }
        return list;
    }
};

// step looks at some bytes of each copy that is ready, and counts them.
size_t step(const Weights &weights, const smelt::Rearranged &rearranged) {
    size_t ready = 0, buffer = 1;
    const uint8_t *from = weights.memory;
    for (uint64_t n : weights.rows) {
        if (const uint8_t *copy = rearranged.at(static_cast<uint32_t>(buffer))) {
            ready++;
            for (uint64_t i = 0; i < n * row_bytes; i += 65521) {
                if (copy[i] != (from[i] ^ static_cast<uint8_t>(mask))) {
                    printf("matrix %zu is ready and not whole\n", buffer);
                    exit(1);
                }
            }
        }
        from += n * row_bytes;
        buffer++;
    }
    return ready;
}

} // namespace

int main() {
    Weights weights;
    for (unsigned threads : {1u, 3u}) {
        smelt::Pool pool(threads);
        smelt_device_options options = {};
        options.native = &native, options.mapped = 1;
        for (int rest : {0, 40}) { // milliseconds between steps
            smelt::Rearranged rearranged(options, pool, weights.sources());
            size_t ready = 0;
            for (int i = 0; i < 1000 && ready < weights.rows.size(); i++) {
                rearranged.before();
                size_t now = step(weights, rearranged);
                if (i < 4) { // long steps: what was begun before one may end in it, and no more
                    std::this_thread::sleep_for(std::chrono::milliseconds(i * 20));
                    if (step(weights, rearranged) > now + 1) {
                        puts("matrices are rearranged during a step");
                        return 1;
                    }
                }
                if (now < ready || (i == 0 && now != 0)) {
                    puts("the first step has copies, or a later one fewer than that before it");
                    return 1;
                }
                ready = now;
                rearranged.after();
                std::this_thread::sleep_for(std::chrono::milliseconds(rest));
            }
            if (ready < weights.rows.size()) {
                puts("some matrices are never rearranged");
                return 1;
            }
        }
        // Left at any time, and done at once.
        for (int steps = 0; steps < 3; steps++) {
            smelt::Rearranged rearranged(options, pool, weights.sources());
            for (int i = 0; i < steps; i++) {
                rearranged.before();
                rearranged.after();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10 * steps));
        }
        options.rearrange = SMELT_REARRANGE_NOW;
        smelt::Rearranged rearranged(options, pool, weights.sources());
        rearranged.before();
        if (step(weights, rearranged) != weights.rows.size()) {
            puts("not done at once");
            return 1;
        }
        rearranged.after();
    }
    return 0;
}
