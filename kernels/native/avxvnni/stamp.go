//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "a8a0c39b87b3c2628ebbf8b2080f9ee237b38f42962d6b7614e853686615f8c1"
