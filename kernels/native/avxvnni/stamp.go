//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "e11c23689e222cb073d5c6fbd3fc8c03e1544d65e748bd99a68f3a5d0462ef17"
