// Kernels of a source file, by host name; those of a set are a few such families.

struct Family {
    const smelt_native_kernel *kernels;
    uint32_t count;
};
extern const Family linear_family, attention_family, rows_family;

INLINE size_t no_shared(const smelt_launch *) { return 0; }

#define ONE(name, supports, units, run) {name, supports, no_shared, 1, {{units, run}, {nullptr, nullptr}}, 0, nullptr}
#define FAMILY(name, kernels) extern const Family name = {kernels, sizeof kernels / sizeof kernels[0]}
