// What driver.cpp asks of ik_llama.cpp, a fork of llama.cpp, where its API is another.
#include "ggml-backend.h"
#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace api {

constexpr const char *NAME = "ik_llama.cpp";

inline std::string version() { return FORK_VERSION; }

// Its one backend is part of the library.
inline bool start(const std::string &) { return true; }

// Weights are "mapped" from the file, "read" into memory, or "repacked" for this processor
// while they are read.
inline llama_model *load(const char *path, const std::string &weights) {
    llama_model_params p = llama_model_default_params();
    p.use_mmap = weights == "mapped";
    p.repack_tensors = weights == "repacked";
    return llama_model_load_from_file(path, p);
}

inline void attend(llama_context_params &p, bool flash) { p.flash_attn = flash; }

// All sequences lie among the same cells.
inline void unify(llama_context_params &, bool) {}

// OpenMP keeps its threads.
class Threads {
public:
    explicit Threads(int) {}
    bool made() const { return true; }
    void attach(llama_context *) const {}
};

// Drops what a sequence has from a position on.
inline bool truncate(llama_context *c, int length) { return llama_kv_cache_seq_rm(c, 0, length, -1); }

// What sequence 0 has cached.
inline std::vector<uint8_t> held(llama_context *c) {
    std::vector<uint8_t> state(llama_state_seq_get_size(c, 0, 0));
    state.resize(llama_state_seq_get_data(c, state.data(), state.size(), 0, 0));
    return state;
}

// Puts so many tokens of that behind those of sequence 0, which has `length`, by way of sequence 1.
inline bool append(llama_context *c, const std::vector<uint8_t> &held, int tokens, int length) {
    if (held.empty() || llama_state_seq_set_data(c, held.data(), held.size(), 1, 0) == 0 ||
        !llama_kv_cache_seq_rm(c, 1, tokens, -1))
        return false;
    llama_kv_cache_seq_add(c, 1, 0, -1, length);
    llama_kv_cache_seq_cp(c, 1, 0, -1, -1);
    return llama_kv_cache_seq_rm(c, 1, -1, -1);
}

inline void clear(llama_context *c) { llama_kv_cache_clear(c); }

// Tokens of the one sequence, of which the first has this position.
inline llama_batch one(llama_token *tokens, int count, int position) {
    return llama_batch_get_one(tokens, count, position, 0);
}

} // namespace api
