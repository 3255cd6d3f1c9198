//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "7f588235209eec9c68dff7fbe39a33235c2aada74ad00210b83c56ac93026dc7"
