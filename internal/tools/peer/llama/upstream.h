// What driver.cpp asks of llama.cpp's library.
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace api {

constexpr const char *NAME = "llama.cpp";

inline std::string version() { return llama_version(); }

// Loads the backends of a folder, or one from its file.
inline bool start(const std::string &backends) {
    if (backends.size() > 3 && backends.compare(backends.size() - 3, 3, ".so") == 0)
        return ggml_backend_load(backends.c_str()) != nullptr;
    ggml_backend_load_all_from_path(backends.c_str());
    return true;
}

// Weights are "mapped" from the file or "read" into memory.
inline llama_model *load(const char *path, const std::string &weights) {
    llama_model_params p = llama_model_default_params();
    p.load_mode = weights == "mapped" ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    return llama_model_load_from_file(path, p);
}

inline void attend(llama_context_params &p, bool flash) {
    p.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

inline void unify(llama_context_params &p, bool unified) { p.kv_unified = unified; }

// Threads are kept: without a pool they are made anew for every step.
class Threads {
public:
    explicit Threads(int count) {
        ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        if (cpu == nullptr)
            return;
        void *make = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_threadpool_new");
        if (make == nullptr)
            return;
        ggml_threadpool_params p = ggml_threadpool_params_default(count);
        pool = reinterpret_cast<decltype(&ggml_threadpool_new)>(make)(&p);
    }
    bool made() const { return pool != nullptr; }
    void attach(llama_context *c) const { llama_attach_threadpool(c, pool, nullptr); }

private:
    ggml_threadpool *pool = nullptr;
};

// Drops what a sequence has from a position on.
inline bool truncate(llama_context *c, int length) { return llama_memory_seq_rm(llama_get_memory(c), 0, length, -1); }

// What sequence 0 has cached.
inline std::vector<uint8_t> held(llama_context *c) {
    std::vector<uint8_t> state(llama_state_seq_get_size(c, 0));
    state.resize(llama_state_seq_get_data(c, state.data(), state.size(), 0));
    return state;
}

// Puts so many tokens of that behind those of sequence 0, which has `length`, by way of sequence 1.
inline bool append(llama_context *c, const std::vector<uint8_t> &held, int tokens, int length) {
    llama_memory_t m = llama_get_memory(c);
    if (held.empty() || !llama_memory_can_shift(m) || llama_state_seq_set_data(c, held.data(), held.size(), 1) == 0 ||
        !llama_memory_seq_rm(m, 1, tokens, -1))
        return false;
    llama_memory_seq_add(m, 1, 0, -1, length);
    llama_memory_seq_cp(m, 1, 0, -1, -1);
    return llama_memory_seq_rm(m, 1, -1, -1);
}

inline void clear(llama_context *c) { llama_memory_clear(llama_get_memory(c), false); }

// Tokens of the one sequence, of which the first has this position.
inline llama_batch one(llama_token *tokens, int count, int) { return llama_batch_get_one(tokens, count); }

} // namespace api
