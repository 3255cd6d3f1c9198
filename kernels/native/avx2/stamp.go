//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "e518cd8c58a39db5f0b0212b1c34dffacfb9fb76bc1c1ee6c07c031107c42ca7"
