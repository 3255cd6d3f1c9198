//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "ca6bdcdd1abd63c85f177eb1b225d968f33ea8c5ee3d4d3273b51267dfb77433"
