//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "025d53eb5e0bebf1182232d1be15514ebe6f0628cbbd9d829ccf3af803cd5361"
