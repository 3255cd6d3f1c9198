// How long llama.cpp takes to embed texts.
//
//     embed MODEL BACKENDS THREADS N,N,...
//
// N are the tokens of each text, whose ids are of no account. A line "TOKENS FLASH" on standard
// input asks for one round of all texts, packed into batches of at most so many tokens, with
// flash attention (1) or without; the answer is a line with the seconds that it took. Pooling
// is that of the file.
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 5)
        die("usage: embed MODEL BACKENDS THREADS N,N,...");
    int threads = atoi(argv[3]);
    std::vector<int> texts;
    std::istringstream list(argv[4]);
    for (std::string word; std::getline(list, word, ',');)
        texts.push_back(atoi(word.c_str()));
    llama_log_set(
        [](ggml_log_level l, const char *t, void *) {
            if (l == GGML_LOG_LEVEL_ERROR)
                fputs(t, stderr);
        },
        nullptr);
    ggml_backend_load_all_from_path(argv[2]);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == nullptr)
        die("llama.cpp cannot load this file");
    // Without a pool llama.cpp makes threads anew for every step.
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    void *make = cpu == nullptr
                     ? nullptr
                     : ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_threadpool_new");
    if (make == nullptr)
        die("the CPU backend has no thread pool");
    ggml_threadpool_params pp = ggml_threadpool_params_default(threads);
    ggml_threadpool *pool = reinterpret_cast<decltype(&ggml_threadpool_new)>(make)(&pp);
    bool encodes = llama_model_has_encoder(model) && !llama_model_has_decoder(model);
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const size_t most = 64; // sequences of a batch
    std::map<std::pair<int, int>, llama_context *> contexts;
    int tokens, flash;
    while (std::cin >> tokens >> flash) {
        llama_context *&ctx = contexts[{tokens, flash}];
        if (ctx == nullptr) {
            llama_context_params p = llama_context_default_params();
            p.n_ctx = p.n_batch = p.n_ubatch = uint32_t(tokens);
            p.n_seq_max = uint32_t(most);
            p.kv_unified = true;
            p.n_threads = p.n_threads_batch = threads;
            p.embeddings = true;
            p.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
            ctx = llama_init_from_model(model, p);
            if (ctx == nullptr)
                die("llama.cpp cannot make a context");
            llama_attach_threadpool(ctx, pool, nullptr);
        }
        llama_batch b = llama_batch_init(tokens, 0, 1);
        auto start = std::chrono::steady_clock::now();
        float sum = 0;
        for (size_t first = 0; first < texts.size();) {
            b.n_tokens = 0;
            size_t last = first;
            for (; last < texts.size() && last - first < most && b.n_tokens + texts[last] <= tokens; last++)
                for (int i = 0; i < texts[last]; i++) {
                    int at = b.n_tokens++;
                    b.token[at] = llama_token((last * 7919 + size_t(i) * 104729) % size_t(vocab));
                    b.pos[at] = i;
                    b.n_seq_id[at] = 1;
                    b.seq_id[at][0] = llama_seq_id(last - first);
                    b.logits[at] = 1;
                }
            if (last == first)
                die("a text does not fit into a batch");
            if (!encodes)
                llama_memory_clear(llama_get_memory(ctx), true);
            if ((encodes ? llama_encode(ctx, b) : llama_decode(ctx, b)) != 0)
                die("llama.cpp cannot compute this batch");
            for (size_t s = 0; s < last - first; s++) {
                const float *v = llama_get_embeddings_seq(ctx, llama_seq_id(s));
                if (v == nullptr)
                    die("llama.cpp gives no embedding of a text");
                sum += v[0];
            }
            first = last;
        }
        double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        llama_batch_free(b);
        printf("%.6f %g\n", took, double(sum));
        fflush(stdout);
    }
    _Exit(0);
}
