// Machines that are not at hand: up to 64 threads on up to four memory nodes, simulated. Threads
// take chunks of a launch as those of a pool do, and read rows from where they are placed; how long
// that takes is reckoned. A node's memory gives each reader the same part of its bandwidth, a
// thread reads no faster than it computes, and slower from another node. Exits with 0 if all are
// as fast as they should be.
#include "nodes.h"
#include "pool.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

constexpr double thread_rate = 8, node_bandwidth = 100; // GB/s
constexpr double from_afar = 0.6;                       // of both

// Three matrices of one launch, as queries, keys and values are, of groups of rows.
constexpr uint32_t group = 32;
constexpr uint64_t groups[] = {128, 32, 32};
constexpr uint64_t units = 192;

enum class Placed { by_readers, on_one_node };

struct Machine {
    smelt::Nodes nodes;
    Placed placed;
    double slow; // the speed of the last thread beside the others'

    // home returns the node that has the rows of a unit.
    size_t home(uint64_t unit) const {
        if (placed == Placed::on_one_node) {
            return 0;
        }
        uint64_t first = 0;
        size_t matrix = 0;
        while (unit >= first + groups[matrix]) {
            first += groups[matrix++];
        }
        uint64_t rows = groups[matrix] * group;
        for (const auto &part : smelt::rowsByNode(nodes, rows, group, {first, groups[matrix]}, units)) {
            if (uint64_t row = (unit - first) * group; row >= part.begin && row < part.end) {
                return part.node;
            }
        }
        puts("a row is nowhere");
        exit(1);
    }

    size_t node(unsigned thread) const {
        size_t n = 0;
        while (thread >= nodes[n].first + nodes[n].threads) {
            n++;
        }
        return n;
    }
};

struct Result {
    double time;  // of a launch whose units take 1 each
    double local; // part of the units that are read where they lie
};

struct Thread {
    std::vector<uint64_t> units; // left of its chunk
    double left = 0;             // of the first of them
};

Result run(const Machine &m) {
    // A chunk is some units of a node's part, as smelt_instance cuts it.
    std::vector<uint32_t> counts;
    std::vector<std::vector<uint64_t>> chunks;
    for (size_t n = 0; n < m.nodes.count(); n++) {
        auto part = m.nodes.part(n, units);
        uint64_t all = part.end - part.begin;
        uint64_t count = std::clamp<uint64_t>(all, 1, uint64_t{m.nodes[n].threads} * smelt::chunks_per_thread);
        counts.push_back(static_cast<uint32_t>(count));
        for (uint64_t c = 0; c < count; c++) {
            chunks.emplace_back();
            for (uint64_t u = part.begin + all * c / count; u < part.begin + all * (c + 1) / count; u++) {
                chunks.back().push_back(u);
            }
        }
    }
    smelt::Wave wave;
    wave.reset(counts.data(), m.nodes);
    std::vector<Thread> threads(m.nodes.threads());
    Result result = {0, 0};
    for (;;) {
        std::vector<int> readers(m.nodes.count());
        bool idle = true;
        for (unsigned i = 0; i < threads.size(); i++) {
            Thread &t = threads[i];
            for (uint32_t chunk; t.units.empty() && wave.take(i, chunk);) {
                t.units = chunks[chunk], t.left = 1;
            }
            if (!t.units.empty()) {
                idle = false;
                readers[m.home(t.units.front())]++;
            }
        }
        if (idle) {
            return result;
        }
        std::vector<double> rate(threads.size());
        double step = 1e9;
        for (unsigned i = 0; i < threads.size(); i++) {
            if (threads[i].units.empty()) {
                continue;
            }
            size_t home = m.home(threads[i].units.front());
            rate[i] = std::min(thread_rate, node_bandwidth / readers[home]) * (home == m.node(i) ? 1 : from_afar) *
                      (i + 1 == threads.size() ? m.slow : 1);
            step = std::min(step, threads[i].left / rate[i]);
        }
        result.time += step;
        for (unsigned i = 0; i < threads.size(); i++) {
            Thread &t = threads[i];
            if (t.units.empty() || (t.left -= step * rate[i]) > 1e-9) {
                continue;
            }
            result.local += (m.home(t.units.front()) == m.node(i)) / static_cast<double>(units);
            t.units.erase(t.units.begin());
            t.left = 1;
        }
    }
}

smelt::Nodes machine(unsigned threads, unsigned nodes) {
    std::vector<smelt_place> places;
    for (unsigned i = 0; i < threads; i++) {
        places.push_back({i * nodes / threads, 0, nullptr});
    }
    return smelt::Nodes(threads, places.data());
}

bool failed = false;

void expect(bool right, const char *what, unsigned threads, unsigned nodes, double is, double ideal) {
    if (!right) {
        printf("%u threads, %u nodes: %s: %.3f, ideal %.3f\n", threads, nodes, what, is, ideal);
        failed = true;
    }
}

} // namespace

int main() {
    for (unsigned nodes : {1u, 2u, 4u}) {
        for (unsigned threads : {1u, 2u, 3u, 4u, 7u, 8u, 12u, 16u, 24u, 31u, 32u, 48u, 64u}) {
            if (threads < nodes) {
                continue;
            }
            // The node with the most threads has the largest part, and no more bandwidth.
            unsigned most = (threads + nodes - 1) / nodes;
            double ideal = units / threads / std::min(thread_rate, node_bandwidth / most);
            ideal *= static_cast<double>((units + threads - 1) / threads * threads) / units;
            Result r = run({machine(threads, nodes), Placed::by_readers, 1});
            expect(r.time <= 1.15 * ideal, "takes too long", threads, nodes, r.time, ideal);
            expect(r.local >= 0.9, "reads too much from afar", threads, nodes, r.local, 1);

            // A neighbour has half a thread, and the chunk that it had begun last may end late.
            double share = r.time * threads / (threads - 0.5), units_each = static_cast<double>(units) / threads;
            double chunk = r.time / units_each * std::max(1.0, units_each / smelt::chunks_per_thread);
            Result slow = run({machine(threads, nodes), Placed::by_readers, 0.5});
            expect(slow.time <= share + 2 * chunk, "a neighbour costs too much", threads, nodes, slow.time, share);

            // What the simulation would say of weights that all lie in one place.
            if (Result bad = run({machine(threads, nodes), Placed::on_one_node, 1}); nodes > 1 && threads >= 16) {
                expect(bad.time >= 1.3 * ideal, "memory on one node is as good", threads, nodes, bad.time, ideal);
            }
            printf("%2u threads, %u nodes: %.3f (ideal %.3f), %.0f %% local, %.2f with a neighbour\n", threads, nodes,
                   r.time, ideal, 100 * r.local, slow.time / r.time);
        }
    }
    return failed ? 1 : 0;
}
