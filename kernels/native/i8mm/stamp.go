//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "43fa4d0e92054f029e593482fada3dea13ffd9eea82610694a55037963f88987"
