#include <metal_stdlib>
using namespace metal;

// Arithmetic of half, by the rules of its type and mixed with float and int.
kernel void half_arithmetic(device const half *a [[buffer(0)]], device const half *b [[buffer(1)]],
                            device half *out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    const half x = a[i], y = b[i];
    device half *o = out + i * 8;
    o[0] = x * y + x;
    o[1] = x / y - 2;
    o[2] = half(float(x) * float(y) + 0.5);
    o[3] = fma(x, y, half(1.0h));
    o[4] = max(x, y) * 3.0h;
    half4 v = half4(x, y, x + y, 1);
    v.yz *= v.xw;
    o[5] = dot(v, v.wzyx);
    o[6] = x > y ? x : y;
    o[7] = half(int(x * 100.0f)) + half(uint(abs(y) * 7));
}

kernel void conversions(device const ushort *bits [[buffer(0)]], device float *from_half [[buffer(1)]],
                        device half *half_back [[buffer(2)]], device float *from_bfloat [[buffer(3)]],
                        device bfloat *bfloat_back [[buffer(4)]], uint i [[thread_position_in_grid]]) {
    const half h = as_type<half>(bits[i]);
    const bfloat b = as_type<bfloat>(bits[i]);
    from_half[i] = h;
    half_back[i] = half(float(h));
    from_bfloat[i] = b;
    bfloat_back[i] = bfloat(float(b));
}

kernel void rounding(device const float *x [[buffer(0)]], device half *halves [[buffer(1)]],
                     device bfloat *bfloats [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    halves[i] = half(x[i]);
    bfloats[i] = bfloat(x[i]);
}

// Functions and vectors: each result is compared with Go's.
kernel void functions(device const float *x [[buffer(0)]], device float *out [[buffer(1)]],
                      device const uint *u [[buffer(2)]], device uint *integers [[buffer(3)]],
                      uint i [[thread_position_in_grid]]) {
    const float a = x[2 * i], b = x[2 * i + 1];
    device float *o = out + i * 32;
    o[0] = exp(a);
    o[1] = precise::log(abs(a) + 0.1);
    o[2] = fast::sin(a);
    o[3] = cos(b);
    o[4] = tanh(a);
    o[5] = rsqrt(abs(b) + 1);
    o[6] = pow(abs(a), b);
    o[7] = fma(a, b, 1.0f);
    o[8] = clamp(a, -0.5, 0.5);
    o[9] = mix(a, b, 0.25f);
    o[10] = select(a, b, a < b);
    o[11] = floor(a * 10);
    o[12] = round(b * 10);
    o[13] = fract(a * 10);
    o[14] = sign(a);
    o[15] = metal::max(a, b);
    o[16] = fmin(a, b);
    o[17] = exp2(a);
    o[18] = atan2(a, b);
    o[19] = copysign(a, b);
    o[20] = saturate(a * 2);
    o[21] = step(a, b);
    float c;
    o[22] = sincos(a, c);
    o[23] = c;
    const float3 p = float3(a, b, 1), q = normalize(cross(p, float3(b, a, 2)));
    o[24] = q.x;
    o[25] = length(p);
    o[26] = dot(max(p, 0.0), float3(1, 2, 3));
    o[27] = any(p < 0) ? 1 : 0;
    o[28] = all(p.xy < p.yx) ? 1 : 0;
    packed_float3 packed[2];
    packed[1] = p.zyx;
    o[29] = float3(packed[1]).z + sizeof(packed);
    o[30] = isnan(a) || isinf(b) ? 1 : 0;
    o[31] = float(char4(as_type<char4>(u[2 * i])).y);
    const uint m = u[2 * i], n = u[2 * i + 1];
    device uint *r = integers + i * 16;
    r[0] = popcount(m);
    r[1] = clz(m);
    r[2] = ctz(m);
    r[3] = reverse_bits(m);
    r[4] = rotate(m, n);
    r[5] = mulhi(m, n);
    r[6] = extract_bits(m, 5, 7);
    r[7] = insert_bits(m, n, 3, 9);
    r[8] = absdiff(m, n);
    r[9] = addsat(m, n);
    r[10] = subsat(m, n);
    r[11] = hadd(m, n);
    r[12] = min3(m, n, 77u);
    r[13] = as_type<uint>(as_type<uchar4>(m).wzyx);
    r[14] = uint(as_type<int>(m) >> 3);
    r[15] = (uint2(m, n) ^ uint2(n << 1, m >> 1)).y % 1000;
}
