//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "9261ed8cb4798d56c2aa380a716aa28ae64cddfc220bcf1427ad9888e58347a0"
