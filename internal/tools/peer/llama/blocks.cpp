// What GGML makes of floats in a type of weights, as an oracle for package quant:
//
//     blocks TYPE < floats > blocks-and-values
//
// TYPE is a ggml_type by its number. The floats are one row, without an importance matrix; what
// is written are its blocks, and then the floats that these stand for.
#include "ggml.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    const ggml_type type = static_cast<ggml_type>(atoi(argv[1]));
    std::vector<float> x(1 << 20);
    x.resize(fread(x.data(), sizeof(float), x.size(), stdin));
    const int64_t n = static_cast<int64_t>(x.size());
    if (n == 0 || n % ggml_blck_size(type) != 0) {
        fprintf(stderr, "%lld elements of %s\n", static_cast<long long>(n), ggml_type_name(type));
        return 1;
    }
    std::vector<char> blocks(ggml_row_size(type, n));
    if (ggml_quantize_chunk(type, x.data(), blocks.data(), 0, 1, n, nullptr) != blocks.size())
        return 1;
    ggml_get_type_traits(type)->to_float(blocks.data(), x.data(), n);
    fwrite(blocks.data(), 1, blocks.size(), stdout);
    fwrite(x.data(), sizeof(float), x.size(), stdout);
    return 0;
}
