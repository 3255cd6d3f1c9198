//go:build linux

// Peer measures smelt and llama.cpp on this machine's processor:
//
//	go run ./internal/tools/peer --document docs/performance.md
//
// The speed of one engine alone means little on a shared machine, whose bandwidth varies from
// minute to minute. So both engines stay loaded, each in a process of its own, and alternate
// sample by sample (A B, B A, A B, …), with a probe of the read bandwidth between the two
// samples of a pair. The result of a cell, which is one test of one model, is the median of the
// ratios within pairs. A test is a prompt (pp512), or tokens generated one at a time after a
// context (tg64@4096). A sample that other processes disturbed is repeated.
//
//   - protocol.go defines the requests to an engine; serve.go answers them for smelt,
//     llama/driver.cpp for llama.cpp, and llamabench.go runs a llama-bench. Deep caches are
//     filled fast: with random contents, and one prompt repeated.
//   - install.go fetches llama.cpp's libraries and builds the driver.
//   - workload.go counts the bytes and operations of a cell, from the model's file.
//   - pairs.go takes the samples, machine.go measures the load of other processes.
//   - tokens.go records llama.cpp's tokens of texts, pipelines.go those of Hugging Face's
//     library: peer tokens, peer pipelines.
//   - guard.go compares two commits of smelt in the same way: peer guard --a main --b HEAD.
//   - templates.go records how others render chat templates: peer templates.
//   - figures.go turns samples into figures, criteria.go judges them, table.go prints.
package main
