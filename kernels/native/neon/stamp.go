//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "8a11fda615057aa925b679e9ee266c8864216e0ea9d3b1b9c36f9f14d3f3653d"
