// Package lower turns fused graphs into a [plan.Plan]: the flat tables that a device
// executes.
//
// The way there has four steps, a file each. select.go gives every op a kernel,
// with its arguments, parameters and grid, which emit.go writes down; what a target
// can do ([NewTarget]) follows from the table of kernels. memory.go plans the arena from
// the lifetimes of values. schedule.go orders the dispatches, decides where they must
// wait for each other and cuts them into command buffers, where the target has any. Package
// plan says what any Plan must satisfy, whether [Lower] made it or [plan.Read] took it from a file.
//
// A plan has a [plan.Phase] for each range of steps that wants kernels of its own: a range of
// their sizes and of how many tokens the longest of their sequences brings.
// [plan.Plan.PhaseFor] answers for any step. Where sequences may share blocks of the cache there is
// a phase without tokens, which copies blocks: a step of it goes before one that writes there.
//
// What choices by size go by is predicted in package predict, and was never measured.
//
// Laws: lower never rewrites a graph, since the last pass has decomposed what the
// target lacks; sizes that differ from step to step stay expressions ([plan.Expr]);
// hazards are decided here and nowhere else: the device only obeys; what a kernel
// takes is called by its name in package kernels, never by a number; and the same
// input gives the same bytes.
package lower
