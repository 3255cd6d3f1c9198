// Package kernels holds the Metal kernels: their sources, and a table of their arguments,
// function constants, parameters and limits, by which the rest of the module launches,
// checks and lists them.
//
// # Sources
//
// A .metal file is one Metal library. It begins with its function constants; the comment
// above a kernel's signature gives the formula, the grid and the threadgroup memory; the
// file ends with the instances by host name. Headers hold what files share: abi/params.h
// (parameter structs), quant.h (weight formats), tile.h (matrix products of tiles),
// activation.h (activations and gates), rotate.h (RoPE), pairs.h (a lane's elements of heads
// that are normalised and rotated), paged.h (the KV cache), head_gate.h (the gate of attention's
// results), attention_core.h (attention of a
// tile of queries), attention_rows.h (attention of a few queries of one KV head), recurrent.h (where states lie), unroll.h
// (loops over a thread's arrays). [Source] returns a file as one text without quoted
// includes, for Metal's compiler.
//
// Sources are MSL 3.1. They need safe mathematics (fastMathEnabled off), because mask and
// softmax rely on infinities.
//
// # Instances
//
// Kernels are templates over the type of activations and of the cache. A host name is
// the family's name and the types of its inputs and outputs in that order: linear_vec
// from half to float is linear_vec_f16_f32. A cache may also consist of Q8_0 blocks (suffix
// q8_0; paged.h), for heads that are multiples of 32: writers quantize, one simdgroup per
// block, and readers multiply by the scale. The type of a stored weight is a function
// constant instead, a number of ir/dtype: specialisation drops the other decoders, and a
// Plan can mix types without a name for each combination.
//
// # Laws
//
//   - Statistics of norms and softmax and every sum are float.
//   - Parameters are structs of 32-bit fields; strides count elements, and byte
//     offsets are computed in 64 bits.
//   - Rows of matrix weights are contiguous. They are aligned to the element size; those of
//     quantized types to four bytes if the block size is a multiple of four, else to two.
//     Rows of a quantized weight hold whole blocks. A weight in lines ([Lines]) is aligned
//     to 16 bytes.
//   - The tiling of a product into threadgroups (rows, tokens and tiles of linear_vec and
//     linear_mat) does not change a bit of its result.
//   - A loop whose variable indexes an array of its thread is marked UNROLL and has a trip
//     count known at compile time; the lint enforces both.
//   - Buffers that a kernel's function constants switch off may be unbound.
//   - A kernel writes each element of its result once, from one thread, after that thread
//     has read its operands at that index: element-wise kernels, rope, norms and the
//     residual of a linear layer work in place.
//   - A threadgroup neither reads nor writes memory that another threadgroup of the launch
//     writes. attention_write binds the caches twice, for reading and for writing other
//     slots. short_conv binds its state twice; the thread that writes an element is the
//     only one that reads it.
//   - attention_vec and attention_write do not read cache slots that a token does not see,
//     and no attention kernel lets such slots change the result.
//   - Threadgroup memory is static and below 32 KB. Heads are multiples of 8 up to
//     [MaxHead], rows of latent caches up to [MaxLatent].
//   - The numbers of buffers, function constants and parameters stand only in the source
//     and in the table; other code uses names ([Kernel.Named], [Kernel.Constant],
//     [Kernel.Param], [Bind]). The table also has the grids that parameters alone define.
//   - Kernels do not check their launch. [Check] does so on the host: devices call it when
//     they load a Plan, tests before every launch.
//
// # Published kernels
//
// Package published maps published kernels to the kernels here, and the function constants, that
// compute the same. The kernels of its folder are for conformance tests; plans use them only on
// request. RoPE computes its frequencies from a base, divided by factors, or reads a table of
// divisors that can express any scaling.
//
// # Elsewhere
//
// kernels/emulated runs the same sources on the CPU; kernels/native has C++ kernels for the
// float instances, under their names. Package abi holds the headers of both.
//
// abi/arguments.gen.h has the numbers of the table for C and C++: run go generate after a
// change to the table; a test compares. abi/attributes.gen.h has the numbers of ir's activations
// and norms, which package lower sets as function constants.
package kernels

//go:generate go run ../internal/tools/arguments abi/arguments.gen.h
