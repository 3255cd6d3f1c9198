// Package integration tests whole models: what several rooms do together, from a file or a
// definition in Go to logits, texts and counts of dispatches. A file is named after its subject.
// They use the public API and what is shared below internal/; what a test needs of one
// package alone stands beside that package.
package integration
