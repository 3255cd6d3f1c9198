// Answers measuring requests by running llama.cpp through its C API.
//
//     driver MODEL THREADS CONTEXT BACKENDS STATE WEIGHTS
//
// BACKENDS is the folder of the ggml backends or the file of one, STATE the beginning of the
// names of files that keep filled caches from one run to the next, or "". WEIGHTS are
// "mapped" from the file or "read" into memory. The protocol is in
// internal/tools/peer/protocol.go: one request a line on standard input, one JSON object a line on
// standard output. upstream.h, which is compiled before this, says how the library is
// called.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int MICROBATCH = 512; // tokens computed at once, as the rival does
constexpr int BATCH = 2048;
// A cache is filled by a prompt of so many tokens at most; more are the same keys and values again,
// at later positions. A prompt of 16,384 takes ten minutes, and what a cache holds does not change
// the time of a step.
constexpr int PIECE = 4096;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double processor_seconds() {
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * double(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

// The most memory that was resident since the start or the last forget_peak.
long peak_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmHWM:", 0) == 0)
            return std::stol(line.substr(6)) * 1024;
    return 0;
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Log lines matter only where something fails: then what was said last is the reason.
void keep_errors(ggml_log_level level, const char *text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

[[noreturn]] void fail(const std::string &what) {
    fprintf(stderr, "%s\n", what.c_str());
    exit(1);
}

// The weights, and the threads that all sequences share.
struct Model {
    Model(const char *path, int threads, const std::string &weights) : threads(threads), pool(threads) {
        model = api::load(path, weights);
        if (model == nullptr)
            fail(std::string(api::NAME) + " cannot load " + path);
        if (!pool.made())
            fail(std::string(api::NAME) + " has no CPU backend with a pool of threads");
        vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
        recurrent = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    }

    llama_model *model;
    int threads, vocabulary;
    bool recurrent; // whether layers have states, which cannot be cut or repeated
    long earlier_peak = 0;

    // A context for so many sequences, of so many tokens together, with flash attention or without;
    // each in a stream of its own, or all among the same cells.
    llama_context *context(int sequences, int tokens, bool flash, bool unified) {
        llama_context_params p = llama_context_default_params();
        p.n_seq_max = uint32_t(sequences);
        p.n_ctx = uint32_t(tokens);
        p.n_batch = BATCH;
        p.n_ubatch = MICROBATCH;
        p.n_threads = p.n_threads_batch = threads;
        p.type_k = p.type_v = GGML_TYPE_F16;
        api::attend(p, flash);
        api::unify(p, unified);
        llama_context *c = llama_init_from_model(model, p);
        if (c == nullptr)
            fail(std::string(api::NAME) + " cannot make a context of " + std::to_string(tokens) + " tokens for " +
                 std::to_string(sequences) + " sequences");
        pool.attach(c);
        return c;
    }

private:
    api::Threads pool;
};

// One sequence in one context, with flash attention or without it.
class Engine {
public:
    Engine(Model &weights, int context, bool flash, const std::string &state)
        : weights(weights), state(state), flash(flash) {
        ctx = weights.context(context > PIECE ? 2 : 1, context, flash, true); // the second for what is repeated
    }

    void prompt(int n) {
        std::vector<llama_token> tokens = random(n);
        for (int at = 0; at < n; at += BATCH)
            decode(&tokens[size_t(at)], std::min(BATCH, n - at));
    }

    void generate(int n) {
        for (llama_token t : random(n))
            decode(&t, 1);
    }

    // Drops all tokens from the n-th on. A recurrent state cannot be cut, so that of a model with one is
    // read from its file, or computed.
    void truncate(int n) {
        if (length < n)
            fail(std::string(api::NAME) + " has " + std::to_string(length) + " tokens, not " + std::to_string(n));
        fill(n);
    }

    // Makes the sequence n tokens long. Loading a kept state needs a second copy of the
    // cache for a moment, which is no part of what the engine takes, and neither is that of
    // a piece: the peak leaves them out.
    void fill(int n) {
        if (length >= n && api::truncate(ctx, n)) {
            length = n;
            return;
        }
        clear();
        if (n == 0)
            return;
        const int piece = weights.recurrent ? n : std::min(n, PIECE);
        long before = peak_bytes();
        if (load(piece)) {
            length = piece;
        } else {
            clear();
            prompt(piece);
            before = peak_bytes();
            save(piece);
        }
        if (n > piece) {
            repeat(piece, n);
            generate(1); // with the first step after them positions are moved
            truncate(n);
        }
        forget_peak();
        weights.earlier_peak = std::max(weights.earlier_peak, before);
    }

    int length = 0;

private:
    void clear() {
        api::clear(ctx);
        length = 0;
    }

    std::vector<llama_token> random(int n) {
        std::uniform_int_distribution<llama_token> any(0, weights.vocabulary - 1);
        std::vector<llama_token> tokens(static_cast<size_t>(n));
        for (llama_token &t : tokens)
            t = any(generator);
        return tokens;
    }

    void decode(llama_token *tokens, int n) {
        if (llama_decode(ctx, api::one(tokens, n, length)) != 0)
            fail(std::string(api::NAME) + " cannot decode at a length of " + std::to_string(length));
        llama_synchronize(ctx);
        length += n;
    }

    // Makes the sequence, a piece, n tokens long.
    void repeat(int piece, int n) {
        const std::vector<uint8_t> held = api::held(ctx);
        for (; length < n; length = std::min(n, length + piece))
            if (!api::append(ctx, held, std::min(piece, n - length), length))
                fail(std::string(api::NAME) + " cannot repeat what it has cached, at a length of " +
                     std::to_string(length));
    }

    // The file that keeps n tokens. Values lie in another order without flash attention.
    std::string file(int n) const { return state + "." + std::to_string(n) + (flash ? "" : ".plain"); }

    bool load(int n) {
        std::vector<llama_token> tokens(static_cast<size_t>(n));
        size_t loaded = 0;
        return !state.empty() && access(file(n).c_str(), R_OK) == 0 &&
               llama_state_seq_load_file(ctx, file(n).c_str(), 0, tokens.data(), tokens.size(), &loaded) > 0 &&
               loaded == tokens.size();
    }

    // Keeps the cache for the next run; a failure costs only time.
    void save(int n) {
        if (state.empty())
            return;
        const std::vector<llama_token> tokens(static_cast<size_t>(n), 0);
        const std::string part = file(n) + ".part";
        if (llama_state_seq_save_file(ctx, part.c_str(), 0, tokens.data(), tokens.size()) == 0 ||
            rename(part.c_str(), file(n).c_str()) != 0)
            unlink(part.c_str());
    }

    Model &weights;
    llama_context *ctx;
    const std::string state;
    const bool flash;
    std::mt19937 generator{1};
};

// Sequences that generate at once, each in a stream of its own, as llama.cpp has them by
// default.
class Batch {
public:
    Batch(Model &weights, int sequences, int each, bool flash)
        : sequences(sequences), each(each), flash(flash), weights(weights) {
        ctx = weights.context(sequences, sequences * ((each + 255) / 256 * 256), flash, false);
        batch = llama_batch_init(BATCH, 0, 1);
    }
    ~Batch() {
        llama_batch_free(batch);
        llama_free(ctx);
    }
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    // Gives every sequence a prompt of so many tokens.
    void prompts(int n) {
        api::clear(ctx);
        for (int s = 0; s < sequences; s++)
            for (int at = 0; at < n; at++) {
                add(s, at, at == n - 1);
                if (batch.n_tokens == BATCH)
                    decode();
            }
        decode();
        length = n;
    }

    // Makes n steps of a token of each, with its logits.
    void generate(int n) {
        for (int i = 0; i < n; i++, length++) {
            for (int s = 0; s < sequences; s++)
                add(s, length, true);
            decode();
        }
    }

    const int sequences, each;
    const bool flash;

private:
    void add(int sequence, int position, bool logits) {
        int i = batch.n_tokens++;
        batch.token[i] = std::uniform_int_distribution<llama_token>(0, weights.vocabulary - 1)(generator);
        batch.pos[i] = position;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = logits;
    }

    void decode() {
        if (batch.n_tokens > 0 && llama_decode(ctx, batch) != 0)
            fail(std::string(api::NAME) + " cannot decode " + std::to_string(batch.n_tokens) +
                 " tokens of several sequences");
        llama_synchronize(ctx);
        batch.n_tokens = 0;
    }

    Model &weights;
    llama_context *ctx;
    llama_batch batch;
    int length = 0;
    std::mt19937 generator{1};
};

void answer_time(const std::function<void()> &work) {
    double cpu = processor_seconds(), start = seconds();
    work();
    printf("{\"seconds\":%.9f,", seconds() - start);
    printf("\"cpu\":%.6f}\n", processor_seconds() - cpu);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 7)
        fail("usage: driver MODEL THREADS CONTEXT BACKENDS STATE mapped|read");
    llama_log_set(keep_errors, nullptr);
    if (!api::start(argv[4]))
        fail(std::string(api::NAME) + " cannot load " + argv[4]);
    llama_backend_init();
    double start = seconds();
    int threads = atoi(argv[2]), context = atoi(argv[3]);
    Model model(argv[1], threads, argv[6]);
    std::unique_ptr<Engine> engines[2]; // without flash attention, made when it is asked for, and with it
    engines[1] = std::make_unique<Engine>(model, context, true, argv[5]);
    Engine *engine = engines[1].get();
    std::unique_ptr<Batch> many;
    bool flash = true;
    printf("{\"name\":\"%s\",\"version\":\"%s\",\"threads\":%d,\"load\":%.3f}\n", api::NAME, api::version().c_str(),
           threads, seconds() - start);
    fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string verb;
        int n = 0, depth = 0, count = 0;
        words >> verb >> n >> depth >> count;
        bool fits = n >= 0 && depth >= 0 && depth <= context && n <= context - depth;
        if (verb == "peak") {
            printf("{\"peak\":%ld}\n", std::max(model.earlier_peak, peak_bytes()));
        } else if (verb == "flash" && (n == 0 || n == 1)) {
            if (engines[n] == nullptr)
                engines[n] = std::make_unique<Engine>(model, context, n == 1, argv[5]);
            engine = engines[n].get();
            flash = n == 1;
            printf("{}\n");
        } else if (verb == "many" && n > 0 && depth > 0 && count > 0) {
            if (many == nullptr || many->sequences != count || many->each < n + depth || many->flash != flash) {
                many.reset(); // before the next takes its memory
                many = std::make_unique<Batch>(model, count, n + depth, flash);
            }
            double before = processor_seconds();
            many->prompts(depth);
            double start = seconds();
            many->generate(n);
            printf("{\"seconds\":%.9f,\"cpu\":%.6f}\n", seconds() - start, processor_seconds() - before);
        } else if (!fits || (verb != "fill" && depth > engine->length)) {
            printf("{\"error\":\"%s %d %d: the sequence has %d tokens, the cache %d\"}\n", verb.c_str(), n, depth,
                   engine->length, context);
        } else if (verb == "fill") {
            answer_time([&] { engine->fill(n); });
        } else if (verb == "pp" || verb == "tg") {
            engine->truncate(depth);
            answer_time([&] { verb == "pp" ? engine->prompt(n) : engine->generate(n); });
        } else {
            printf("{\"error\":\"no such request\"}\n");
        }
        fflush(stdout);
    }
    _exit(0); // the library's own end takes a second that nobody waits for
}
