// Package passes turns the source graph of a model into the graph that a target
// runs.
//
// The pipeline is a table (pipeline.go): general passes and one row for each
// fusion rule, in an order that a second table of constraints explains and checks.
// Every row can be switched off by name but the few that are required, and the
// result is the same but for speed. After each row that changed it the graph is verified,
// and once more at the end; a pass that breaks a law, or panics, is named by the error.
//
//	report, err := passes.Compile(f, target, passes.Options{Level: 1})
//	fmt.Println(report.Fusions["kv_replication_elimination"])
//
// What a pass may assume: values stand in program order, and nothing is dead or
// replaced but not yet gone. What it must leave: the same.
//
// At level 0 only legalise runs: it replaces ops that the target lacks. Targets
// have a kernel for every source op, so a source graph stays as it is.
package passes
