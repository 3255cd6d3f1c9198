//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "91dcd8ae103d2ce2bb32c5a713458b7be8238ff6165137f0c8e6339d52de63f1"
