// Package verify runs a model in every way that there is, on the same few tokens, and
// says how far the ways are apart and where they part.
//
// A compiler of models goes wrong quietly: a matrix in the wrong order or a mask that is
// one token short still gives numbers, and often text. So nothing is believed by itself.
// [Run] compares in three manners, and each [Check] says in which:
//
//   - in bits, what promises the same bits: any number of threads, weights as they are
//     stored and rearranged, orders of threads, a Plan from a file; on the CPU many tokens at
//     once and one after the other;
//   - with float64, each op by itself, from the operands that the device had. One op's
//     rounding is not carried into the next, so bounds are narrow, and one row of one
//     matrix that is a hundredth off is found and named;
//   - with each other, logits and caches after all layers: the source graph and the fused
//     one, native kernels and emulated ones, half and float, on a GPU many tokens at once and
//     one after the other. Layers amplify rounding, so these bounds are wide; they catch what
//     the ops one by one cannot, an op in the wrong place.
//
// What is looked at has to be seen first. A Plan shows its results only and reuses memory
// as soon as it can, so a rig lowers the same graphs again with every picked value for an
// output, and, where that is wanted, runs each dispatch as a phase of its own. That the
// plan which is looked at computes what the one that runs does is one of the checks.
//
// A [Bisection] goes on from there. It runs the graph that each pass has left and names
// the first pass that changes results; it names the first op that float64 does not agree
// with, and the first value that is no number.
//
// The package knows a model by four methods only, [Subject], so that whoever compiles
// models may offer to verify them:
//
//	f, err := verify.Run(ctx, verify.Verification{Subject: m, Device: "cpu"})
//	if !f.OK { … }
package verify
