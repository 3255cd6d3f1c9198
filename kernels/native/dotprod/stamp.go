//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "44bb6246902161bfe098f90d5173be1c73bf662954e1432bed743315c598a440"
