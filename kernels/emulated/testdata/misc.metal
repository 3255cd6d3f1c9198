#include <metal_stdlib>
#include <metal_atomic>
using namespace metal;
// features that are awkward on the host
enum class Op : uint { add, mul };
constant float LUT[4] = {0.0, 0.25, 0.5, 1.0};
constant uint FC_N [[function_constant(2)]];
constant bool has_n = is_function_constant_defined(FC_N);
template<typename T, Op op> inline T apply(T a, T b) { if (op == Op::add) return a + b; else return a * b; }
inline float helper_sum(threadgroup float* s, ushort lane, thread float& out) {
    out = simd_max(s[lane]);
    return simd_shuffle_down(s[lane], 1) + simd_shuffle_xor(s[lane], 16) + simd_broadcast(s[lane], 3);
}
kernel void misc(device float* out [[buffer(0)]],
                 device atomic_uint* counter [[buffer(1)]],
                 constant uint& n [[buffer(2)]],
                 threadgroup float* dyn [[threadgroup(0)]],
                 uint tid [[thread_position_in_threadgroup]],
                 uint2 grid [[threads_per_grid]],
                 ushort lane [[thread_index_in_simdgroup]])
{
    half4 h = half4(half3(1.0h, 2.0h, 3.0h), 4.0h);
    h.xy = h.yx; h.w *= 2.0h;
    const uint u = as_type<uint>(1.0f) + as_type<ushort>(half(1.0));
    uchar4 c = as_type<uchar4>(u);
    dyn[tid] = float(lane) + LUT[lane & 3];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float mx; float r = helper_sum(dyn, lane, mx);
    uint ps = simd_prefix_exclusive_sum(1u);
    bool any = simd_any(lane == 5), all = simd_all(lane < 32);
    if (tid < n) {
        atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
        out[tid] = apply<float, Op::add>(r, mx) + float(h.x + h.w) + float(c.w) + select(0.f, 1.f, any) + clamp(float(ps), 0.0f, 2.0f) + (all ? 1.f : 0.f) + popcount(u) + (has_n ? 1.f : 0.f);
    }
}
