// Package lower turns fused graphs into a [plan.Plan]: the flat tables that a device
// executes.
//
// Lowering has four steps. The select files choose a kernel for every op, with its arguments,
// parameters and grid, and emit.go writes the dispatch; the kernels of a target ([NewTarget])
// follow from the table of kernels. memory.go plans the arena from the lifetimes of values.
// schedule.go orders the dispatches, sets barriers between those that depend on each other, and
// splits them into command buffers, where the target has any. [plan.Plan.Validate] checks the laws
// of a Plan, both when [Lower] has made it and when [plan.Read] has read it from a file.
//
// A Plan has a [plan.Phase] for each range of steps with kernels of its own: a range of sizes and
// of the tokens of the longest sequence. [plan.Plan.PhaseFor] returns the phase of a step. Where
// sequences can share blocks of the cache, a phase without tokens copies blocks before a step
// writes to them.
//
// Choices by size rest on predictions of package predict, which were never measured. Choices that
// were measured on a device come from a [Tuning].
//
// Laws: lower never rewrites a graph, since the last pass has decomposed the ops that the target
// lacks; sizes that differ from step to step stay expressions ([plan.Expr]); hazards are resolved
// here only, and a device obeys the barriers; arguments, constants and parameters of a kernel go by
// their names in package kernels, never by numbers; the same input gives the same bytes.
package lower
