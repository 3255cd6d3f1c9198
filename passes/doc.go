// Package passes rewrites the source graph of a model into a graph of ops that the
// target has.
//
// The pipeline is a table (pipeline.go): general passes and one row for each
// fusion rule. A second table of constraints checks the order and gives its reasons.
// Every row except the required ones can be switched off by name, which changes only
// speed. Compile verifies the graph after each row that changed it, and once more at the
// end; the error names a pass that breaks a law or panics.
//
//	report, err := passes.Compile(f, target, step, passes.Options{Level: 1})
//	fmt.Println(report.Fusions["kv_replication_elimination"])
//
// Invariant before and after each pass: values are in program order, and none is
// replaced yet still listed.
//
// At level 0 only legalise runs: it replaces ops that the target lacks. Targets
// have a kernel for every source op, so a source graph stays as it is.
package passes
