//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "b95a84bd63f723c19c9a5cc7ba9086a32a6e34d0c2e65a2bd25c48f833e01f98"
