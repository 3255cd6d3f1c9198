// The ids that llama.cpp gives texts, as an oracle for vocabularies: any GGUF file whose
// vocabulary it loads.
//
//     tokens MODEL ends|plain
//
// Every line of standard input is a text in hexadecimal digits, every line of standard
// output its ids; "ends" adds what the model adds to a prompt. User-defined tokens are
// recognised, control tokens are not.
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    die("a text is not in hexadecimal digits");
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        die("usage: tokens MODEL ends|plain");
    bool ends = strcmp(argv[2], "ends") == 0;
    llama_log_set(
        [](ggml_log_level l, const char *t, void *) {
            if (l == GGML_LOG_LEVEL_ERROR)
                fputs(t, stderr);
        },
        nullptr);
    llama_backend_init();
    llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    llama_model *model = llama_model_load_from_file(argv[1], p);
    if (model == nullptr)
        die("llama.cpp cannot load this file");
    const llama_vocab *vocab = llama_model_get_vocab(model);
    std::vector<llama_token> ids;
    for (std::string line; std::getline(std::cin, line);) {
        std::string text;
        for (size_t i = 0; i + 1 < line.size(); i += 2)
            text += (char)(digit(line[i]) * 16 + digit(line[i + 1]));
        ids.resize(2 * text.size() + 16);
        int n = llama_tokenize(vocab, text.data(), (int)text.size(), ids.data(), (int)ids.size(), ends, false);
        if (n < 0)
            die("llama.cpp gives more ids than expected");
        for (int i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", ids[i]);
        printf("\n");
    }
    fflush(stdout);
    _Exit(0);
}
