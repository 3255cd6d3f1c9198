// Memory nodes (NUMA), and the processors that threads are pinned to.
//
// A memory node is a part of the memory and the processors that reach it faster than the rest.
// On a machine with several nodes, each begins with its own part of a launch's units, whose
// weights are in the node's memory, so that most reads are local and all memories are read at
// once. Other machines, and unknown ones, have one node, at no cost.
//
// Threads are pinned to the processors of a node, and to one core each if there are as many
// threads as cores: another process on one core then takes a share of that core only, where the
// scheduler would otherwise move its thread to a core with another.
#ifndef SMELT_METAL_NODES_H
#define SMELT_METAL_NODES_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/provider/device.h"

namespace smelt {

struct Range {
    uint64_t begin, end;
};

// A memory node with the consecutive threads that run on it.
struct Node {
    uint32_t id; // the system's number
    unsigned first, threads;
};

// The memory nodes of some threads. The system may refuse to place memory or to pin threads, which
// is ignored: results do not depend on it.
class Nodes {
public:
    // One node, of all threads.
    explicit Nodes(unsigned threads) : Nodes(threads, nullptr) {}
    // The nodes of the threads' places, which may be null.
    Nodes(unsigned threads, const smelt_place *places);

    size_t count() const { return list_.size(); }
    unsigned threads() const { return static_cast<unsigned>(processors_.size()); }
    const Node &operator[](size_t i) const { return list_[i]; }

    // part returns the range, of `of` consecutive elements, that a node's threads begin with.
    Range part(size_t node, uint64_t of) const {
        const Node &n = list_[node];
        return {of * n.first / threads(), of * (n.first + n.threads) / threads()};
    }

    // keep pins the calling thread to the processors of a thread.
    void keep(unsigned thread) const;
    bool anywhere(unsigned thread) const { return processors_[thread].empty(); }

    // place allocates the pages of untouched memory on a node, and spread interleaves them over all
    // nodes. Memory begins and ends at page boundaries.
    void place(size_t node, void *memory, uint64_t bytes) const;
    void spread(void *memory, uint64_t bytes) const;

private:
    std::vector<Node> list_;
    std::vector<std::vector<unsigned long>> processors_; // masks, by thread; empty: any
};

// Pins the calling thread to the processors of one of the nodes' threads while it lives.
class Kept {
public:
    Kept(const Nodes &nodes, unsigned thread);
    ~Kept();
    Kept(const Kept &) = delete;
    Kept &operator=(const Kept &) = delete;

#ifdef __linux__
private:
    // The largest number of processors that Linux can be built for.
    static constexpr size_t most_processors = 8192;

    unsigned long before_[most_processors / (8 * sizeof(unsigned long))]; // a mask
    long bytes_ = 0;                                                      // of the mask; 0: nothing was changed
#endif
};

// Rows of a matrix that a node's threads read.
struct Rows {
    size_t node;
    uint64_t begin, end;
};

// rowsByNode returns the rows of a matrix, in whole groups, that each node's threads begin with,
// where the units `readers` of the `units` of a launch read the rows in order.
std::vector<Rows> rowsByNode(const Nodes &nodes, uint64_t rows, uint32_t group, smelt_units readers, uint64_t units);

} // namespace smelt

#endif
