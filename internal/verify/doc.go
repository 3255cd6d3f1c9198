// Package verify runs a model in every available way on the same few tokens, and reports how far
// the ways differ and where they begin to.
//
// A compiler of models fails quietly: a matrix in the wrong order or a mask that is one token
// short still gives numbers, and often text. So no result is trusted by itself. [Run] compares
// in three manners, and each [Check] names its own:
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
// A value must be visible to be compared. A Plan exposes its results only and reuses memory as
// soon as it can, so a rig lowers the same graphs again with every picked value as an output
// and, on request, with each dispatch as a phase of its own. One of the checks is that the plan
// with probes computes the same as the one that runs.
//
// A [Bisection] narrows a fault down. It runs the graph after each pass and names the first pass
// that changes results, the first op that differs from float64, and the first value that is not
// finite.
//
// The package knows a model only through the interface [Subject], so that any package that
// compiles models can verify them:
//
//	f, err := verify.Run(ctx, verify.Verification{Subject: m, Device: "cpu"})
//	if !f.OK { … }
package verify
