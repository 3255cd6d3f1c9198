//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "79de7c595b48611243f810c968b9eb60947262d433022b081295f5ba107f4800"
