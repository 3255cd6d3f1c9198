// Where threads work: on which processors, and in whose memory.
//
// A memory node is a part of the memory and the processors that reach it faster than the rest.
// On a machine with several of them, each node begins with its own part of a launch's units, and
// the rows that these read lie in the node's memory. So most weights are read where they lie, by
// every step, and all nodes' memories are read at once. On other machines, and where the system
// tells nothing, there is one node, and nothing here has a cost.
//
// Threads keep to the processors of a node, and to one core each where there are as many threads
// as cores: a neighbour who comes to one core then has a share of that, where the system would
// have put two threads on another.
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

// Threads that follow one another, on a memory node.
struct Node {
    uint32_t id; // the system's number
    unsigned first, threads;
};

// Nodes are those of some threads. Placing memory and keeping threads are wishes, which the
// system may refuse: results do not depend on them.
class Nodes {
public:
    // One node, of all threads.
    explicit Nodes(unsigned threads) : Nodes(threads, nullptr) {}
    // Those of the threads' places, which may be null.
    Nodes(unsigned threads, const smelt_place *places);

    size_t count() const { return list_.size(); }
    unsigned threads() const { return static_cast<unsigned>(processors_.size()); }
    const Node &operator[](size_t i) const { return list_[i]; }

    // part is what a node's threads begin with, of so many things in a row.
    Range part(size_t node, uint64_t of) const {
        const Node &n = list_[node];
        return {of * n.first / threads(), of * (n.first + n.threads) / threads()};
    }

    // keep has the calling thread run on a thread's processors.
    void keep(unsigned thread) const;
    bool anywhere(unsigned thread) const { return processors_[thread].empty(); }

    // place has pages of memory that was not touched yet come from a node, and spread from all of
    // them in turn. Memory begins and ends with whole pages.
    void place(size_t node, void *memory, uint64_t bytes) const;
    void spread(void *memory, uint64_t bytes) const;

private:
    std::vector<Node> list_;
    std::vector<std::vector<unsigned long>> processors_; // masks, by thread; empty: any
};

// While it lives, the calling thread keeps to the processors of one of these threads.
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
    long bytes_ = 0;                                                      // of it; none: nothing was changed
#endif
};

// Rows of a matrix that a node's threads read.
struct Rows {
    size_t node;
    uint64_t begin, end;
};

// rowsByNode tells which rows of a matrix, out of groups of so many, each node's threads
// begin with, when the units `readers` out of `units` of a launch read them one after the
// other.
std::vector<Rows> rowsByNode(const Nodes &nodes, uint64_t rows, uint32_t group, smelt_units readers, uint64_t units);

} // namespace smelt

#endif
