//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "07b5e9cd8f49f32f733581ff75342402980596643e68e0e54746d97d888a93b3"
