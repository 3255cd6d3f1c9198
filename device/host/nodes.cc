//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "nodes.h"

#include <algorithm>

#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace smelt {

Nodes::Nodes(unsigned threads, const smelt_place *places) : processors_(threads) {
    for (unsigned i = 0; i < threads; i++) {
        uint32_t id = 0;
        if (places != nullptr) {
            id = places[i].node;
            processors_[i].assign(places[i].processors, places[i].processors + places[i].words);
        }
        if (list_.empty() || list_.back().id != id) {
            list_.push_back({id, i, 0});
        }
        list_.back().threads++;
    }
}

std::vector<Rows> rowsByNode(const Nodes &nodes, uint64_t rows, uint32_t group, smelt_units readers, uint64_t units) {
    std::vector<Rows> list;
    for (size_t n = 0; n < nodes.count(); n++) {
        Range part = nodes.part(n, units);
        const auto row = [&](uint64_t unit) {
            uint64_t at = std::clamp(unit, readers.first, readers.first + readers.count) - readers.first;
            return at == readers.count ? rows : rows * at / readers.count / group * group;
        };
        if (uint64_t begin = row(part.begin), end = row(part.end); begin < end) {
            list.push_back({n, begin, end});
        }
    }
    return list;
}

#ifdef __linux__

namespace {

constexpr size_t bits_of_word = 8 * sizeof(unsigned long);

void setPolicy(int mode, const std::vector<unsigned long> &nodes, void *memory, uint64_t bytes) {
    // mbind uses one bit less than its maxnode.
    syscall(SYS_mbind, memory, bytes, mode, nodes.data(), nodes.size() * bits_of_word + 1, 0);
}

void addNode(std::vector<unsigned long> &mask, uint32_t id) {
    mask.resize(std::max<size_t>(mask.size(), id / bits_of_word + 1));
    mask[id / bits_of_word] |= 1ul << id % bits_of_word;
}

void runOn(const unsigned long *processors, size_t bytes) { syscall(SYS_sched_setaffinity, 0, bytes, processors); }

} // namespace

void Nodes::keep(unsigned thread) const {
    if (!anywhere(thread)) {
        runOn(processors_[thread].data(), processors_[thread].size() * sizeof(unsigned long));
    }
}

void Nodes::place(size_t node, void *memory, uint64_t bytes) const {
    std::vector<unsigned long> mask;
    addNode(mask, list_[node].id);
    setPolicy(MPOL_PREFERRED, mask, memory, bytes);
}

void Nodes::spread(void *memory, uint64_t bytes) const {
    std::vector<unsigned long> mask;
    for (const Node &n : list_) {
        addNode(mask, n.id);
    }
    setPolicy(MPOL_INTERLEAVE, mask, memory, bytes);
}

Kept::Kept(const Nodes &nodes, unsigned thread) {
    if (nodes.anywhere(thread)) {
        return;
    }
    bytes_ = syscall(SYS_sched_getaffinity, 0, sizeof before_, before_);
    if (bytes_ > 0) {
        nodes.keep(thread);
    }
}

Kept::~Kept() {
    if (bytes_ > 0) {
        runOn(before_, static_cast<size_t>(bytes_));
    }
}

#else

// Apple's chips have one memory for all processors.
void Nodes::keep(unsigned) const {}
void Nodes::place(size_t, void *, uint64_t) const {}
void Nodes::spread(void *, uint64_t) const {}
Kept::Kept(const Nodes &, unsigned) {}
Kept::~Kept() = default;

#endif

} // namespace smelt
