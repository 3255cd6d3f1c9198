//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "3bc0268da8bba62c133f67db29c89ad23e4897c69541d482234e8ffac65def59"
