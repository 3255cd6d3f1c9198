//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "e4b49e45d7a22c2a5680811dbcfe01785cb238979f2a2e3c58a31b648255a793"
