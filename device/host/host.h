// The host provider: a Plan executed by kernels on the CPU.
#ifndef SMELT_METAL_HOST_H
#define SMELT_METAL_HOST_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <mutex>
#include <vector>

#include "device/provider/device.h"
#include "pool.h"
#include "rearranged.h"

extern "C" {
const smelt_provider *smelt_host_provider(void);
const smelt_host *smelt_host_half(void);
}

struct smelt_buffer {
    void *memory;
    uint64_t bytes;
    bool mapped; // by buffer_create
};

namespace smelt {

// fail fills error and returns its code.
__attribute__((format(printf, 5, 6))) int fail(smelt_error *error, int code, int64_t dispatch, int64_t argument,
                                               const char *format, ...);

// Scratch is memory for native kernels that only grows; each step reuses it.
class Scratch {
public:
    ~Scratch();
    bool reserve(size_t bytes);
    uint8_t *at(size_t offset) const { return memory_ + offset; }

private:
    uint8_t *memory_ = nullptr;
    size_t bytes_ = 0;
};

constexpr uint32_t constant_words = 32;

} // namespace smelt

struct smelt_device {
    smelt_device_options options;
    std::unique_ptr<smelt::Pool> pool;
    smelt::Scratch scratch;
};

// The tables of a Plan, copied, with kernels looked up.
struct smelt_executable {
    struct Kernel {
        std::string name;
        const void *emulated;
        const smelt_native_kernel *native;
        const smelt_native_kernel *blas; // for dispatches on_cpu that it covers
        bool native_everywhere;          // at the bounds
    };

    smelt_device *device;
    std::vector<smelt_term> terms;
    std::vector<smelt_value> values;
    std::vector<smelt_argument> arguments;
    std::vector<uint32_t> words;
    std::vector<uint32_t> constants;
    std::vector<smelt_dispatch> dispatches;
    std::vector<smelt_phase> phases;
    std::vector<Kernel> kernels;
    std::vector<smelt_buffer *> buffers; // null where each instance has its own
    std::unique_ptr<smelt::Rearranged> rearranged;

    smelt_executable(smelt_device *device, const smelt_tables &tables, smelt_buffer *const *buffers);
    int findKernels(const smelt_tables &tables, smelt_error *error);
    int findNatives(smelt_error *error);
    void rearrange(const smelt_tables &tables);
    void findReaders(std::vector<smelt::Rearranged::Source> &sources) const;
    // runs returns whether the host executes a dispatch.
    bool runs(const smelt_dispatch &d) const { return device->options.half == 0 || d.on_cpu != 0; }
    void evaluate(const int64_t *sizes, std::vector<int64_t> &results) const;
};

namespace smelt {

// Launches are the dispatches of an executable, resolved for the memory of an instance and the
// sizes of a step.
class Launches {
public:
    struct Memory {
        uint8_t *base;
        uint64_t bytes;
    };

    explicit Launches(const smelt_executable &executable);

    // resolve fills in the launches of a phase, or fails with the dispatch that leaves its memory.
    // memory is by buffer of the Plan.
    int resolve(const smelt_phase &phase, const int64_t *sizes, const std::vector<Memory> &memory, smelt_error *error);

    const smelt_launch &operator[](uint32_t dispatch) const { return launches_[dispatch]; }
    uint64_t threadgroups(uint32_t dispatch) const { return threadgroups_[dispatch]; }
    // useRearranged points a resolved launch, which must not be running, to the rearranged
    // weights that are ready, if native is not null; else to the file's.
    void useRearranged(uint32_t dispatch, const smelt_native_kernel *native);
    // native returns the native kernel if it covers the resolved launch, else null.
    const smelt_native_kernel *native(uint32_t dispatch) const;

private:
    int resolveOne(uint32_t index, const std::vector<Memory> &memory, smelt_error *error);

    const smelt_executable &executable_;
    std::vector<int64_t> values_;
    std::vector<smelt_launch> launches_;
    std::vector<uint64_t> threadgroups_;
    std::vector<void *> pointers_;
    std::vector<uint64_t> bytes_;
    std::vector<uint32_t> words_;
};

} // namespace smelt

// An instance holds everything that a step needs besides the tables, allocated once.
struct smelt_instance final : smelt::Work {
    smelt_instance(smelt_executable *executable, smelt_buffer *const *buffers, const uint64_t *ring_stride);

    int run(const smelt_step &step, smelt_counts *counts, smelt_kernel_count *kernels, uint64_t *nanoseconds,
            smelt_error *error);
    // resolve fills in the launches of a step, or rejects it; runRange then executes some of
    // its dispatches, and adds to counts and kernels.
    int resolve(const smelt_step &step, smelt_error *error);
    int runRange(uint32_t first, uint32_t count, smelt_counts *counts, smelt_kernel_count *kernels,
                 uint64_t *nanoseconds, smelt_error *error);
    const smelt_launch &launch(uint32_t dispatch) const { return launches_[first_dispatch_ + dispatch]; }
    std::atomic<uint32_t> cancel{0};

    void run(uint32_t wave, uint32_t chunk, uint32_t &cursor) override;
    bool finish(uint32_t wave) override;

private:
    // Job is one stage of one dispatch.
    struct Job {
        uint32_t dispatch, stage;
        bool last; // of the dispatch
        uint64_t units;
        size_t scratch; // offset
    };
    // Item is the part of a job that the threads of one memory node begin with.
    struct Item {
        uint32_t dispatch;
        uint32_t first_chunk, chunks;
        uint32_t stage;
        smelt::Range units;
        const smelt_native_kernel *native; // null: emulated
        size_t scratch;                    // offset
        bool last;                         // of the dispatch
        bool backwards;                    // chunks are handed out from the end
    };
    // Span holds the items of a wave, and the barriers and command buffers before it.
    struct Span {
        uint32_t first_item, item_count;
        uint32_t barriers, command_buffers;
    };

    int cut(uint32_t first, uint32_t count, smelt_error *error);
    size_t addGroup(uint32_t first, uint32_t count, bool serial);
    void addJob(uint32_t dispatch, uint32_t stage, size_t scratch);
    void addWave();
    void addItem(const Job &job, size_t node, uint32_t &chunks);
    bool stopBefore(uint32_t wave);
    void execute(const Item &item, uint64_t begin, uint64_t end);
    void record(uint32_t dispatch, const char *message);

    smelt_executable &executable_;
    smelt::Launches launches_;
    std::vector<smelt_buffer *> buffers_;
    std::vector<uint64_t> ring_stride_;
    std::vector<smelt::Launches::Memory> memory_;

    std::vector<Item> items_;
    std::vector<Span> spans_;
    std::vector<smelt::Wave> waves_;
    std::vector<uint32_t> order_;                      // of the dispatches of a group
    std::vector<const smelt_native_kernel *> natives_; // by dispatch of the phase
    std::vector<Job> jobs_;                            // of the next wave
    std::vector<uint32_t> node_chunks_;                // of the next wave, by memory node
    uint32_t item_count_ = 0, wave_count_ = 0;
    uint32_t barriers_ = 0, command_buffers_ = 0; // before the next wave
    bool whole_ = false;                          // the step has no command buffers
    uint64_t random_ = 0;

    // Of the running step; written by one thread at a time, in finish.
    uint32_t first_dispatch_ = 0;
    bool profile_ = false;
    smelt_counts *counts_ = nullptr;
    smelt_kernel_count *kernels_ = nullptr;
    uint64_t *nanoseconds_ = nullptr;
    uint64_t wave_began_ = 0;
    bool cancelled_ = false;

    std::atomic<bool> failed_{false};
    std::mutex failure_mutex_;
    smelt_error failure_{};
};

#endif
