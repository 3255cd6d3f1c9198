//go:build linux

// Peer measures smelt beside llama.cpp on this machine's processor:
//
//	go run ./internal/tools/peer --document docs/performance.md
//
// Speeds of one engine alone say little on a shared machine, whose bandwidth moves from
// minute to minute. So both engines stay loaded, each in a process of its own, and take
// turns sample by sample (A B, B A, A B, …), with a probe of the read bandwidth between
// the two of a pair. What is compared is the ratio within each pair; its median is the
// result of a cell, which is one test of one model: a prompt (pp512), or tokens one at
// a time after so many others (tg64@4096). A sample that other processes disturbed is
// repeated.
//
//   - protocol.go says how an engine is asked; serve.go answers for smelt,
//     llama/driver.cpp for llama.cpp, and llamabench.go asks a llama-bench. What fills
//     a deep cache is quick: random contents, and one prompt again and again.
//   - install.go fetches llama.cpp's libraries and builds the driver.
//   - workload.go counts the bytes and operations of a cell, from the model's file.
//   - pairs.go takes the samples, machine.go watches what else runs.
//   - tokens.go keeps what llama.cpp makes of texts, pipelines.go what Hugging Face's library
//     does: peer tokens, peer pipelines.
//   - guard.go compares two commits of smelt in the same way: peer guard --a main --b HEAD.
//   - templates.go keeps what others render from chat templates: peer templates.
//   - figures.go turns samples into figures, criteria.go judges them, table.go prints.
package main
