//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "821a7cfe2aeb07624689651791ae77536b59061cac381e4bba21c3a26e4034e4"
