// Package kernels holds the Metal kernels: their sources and a table of what each
// takes, for everyone who launches, checks or lists them.
//
// # Sources
//
// A .metal file is one family and one Metal library. It begins with its function
// constants, each kernel says above its signature what it computes, on which grid and
// with how much threadgroup memory, and the file ends with its instances by host name.
// What families share lies in headers: abi/params.h (parameter structs), quant.h (weight
// formats), tile.h (products of tiles), activation.h (activations and gates), rotate.h (RoPE), pairs.h
// (what a lane has of heads that are normalised and rotated), paged.h (the KV cache),
// attention_core.h (attention of a tile, wherever its keys lie), attention_rows.h (of a few
// queries of one KV head), unroll.h (loops over a thread's arrays).
// [Source] returns a family as one text without quoted includes, as Metal's compiler
// takes it.
//
// Sources are MSL 3.1. They are written for safe mathematics (fastMathEnabled off):
// mask and softmax rely on infinities.
//
// # Instances
//
// Kernels are templates over the type of activations and of the cache. A host name is
// the family's name and the types of its inputs and outputs in that order: linear_vec
// from half to float is linear_vec_f16_f32. A cache may also be of Q8_0 blocks (suffix
// q8_0; paged.h), for heads that are multiples of 32: what writes one quantizes, a
// simdgroup to a block, and what reads one multiplies by the scale. The type of a stored weight is a function
// constant instead, a number of ir/dtype: specialisation drops the
// other decoders, and a Plan can mix types without a name for each combination.
//
// # Laws
//
//   - Statistics of norms and softmax and every sum are float.
//   - Parameters are structs of 32-bit fields; strides count elements, and byte
//     offsets are computed in 64 bits.
//   - Rows of matrix weights follow each other without gaps and start at multiples of
//     their element's size; of quantized types at multiples of four bytes where the size
//     of a block is one, else of two. Rows of a quantized weight hold whole blocks.
//     A weight in lines ([Lines]) starts at a multiple of 16.
//   - How a product is cut into threadgroups (rows, tokens and tiles of linear_vec and
//     linear_mat) changes no bit of it.
//   - A loop whose variable indexes an array of its thread is marked UNROLL, and the number
//     of its turns is known when the kernel is compiled; the lint asks for both.
//   - Buffers that a kernel's function constants switch off may be unbound.
//   - A kernel writes each element of its result once, from one thread, after reading
//     what it needs at that index: element-wise kernels, rope, norms and the residual
//     of a linear work in place.
//   - Threadgroups of a launch touch nothing that another of them writes. attention_write
//     has the caches bound twice, to be read and to be written: other slots. So has short_conv
//     its state, and the thread that writes an element has read what it needs of it.
//   - Cache slots that a token does not see are not read by attention_vec and attention_write, and no
//     kernel of attention lets them reach the result.
//   - Threadgroup memory is static and below 32 KB. Heads are multiples of 8 up to
//     [MaxHead].
//   - Buffers, function constants and parameters have their numbers in the source and in
//     the table, and everybody else names them ([Kernel.Named], [Kernel.Constant],
//     [Kernel.Param], [Bind]). Where parameters alone decide a grid, it stands in the
//     table too.
//   - Kernels trust their launch. [Check] says on the host what a kernel would not
//     cover: the devices ask it when they load a Plan, the tests before every launch.
//
// # Published kernels
//
// Where a kernel computes what a published one does, perhaps with certain function
// constants, [Origins] has a row that says so. Sources under published/ have kernels that
// conformance tests run and plans reach only where they are asked to ([Kept] has the reasons). RoPE takes its frequencies inline from a
// base, divided by factors, or from a table of divisors into which any scaling goes.
//
// # Elsewhere
//
// The same sources run on the CPU in kernels/emulated; kernels/native computes what the
// float instances compute, under their names. Package abi holds the headers of both.
//
// abi/arguments.gen.h has the numbers of the table for C and C++; after a change to the table
// run go generate, and a test compares. abi/attributes.gen.h has the numbers of ir's activations
// and norms, which package lower sets as function constants.
package kernels

//go:generate go run ../internal/tools/arguments abi/arguments.gen.h
