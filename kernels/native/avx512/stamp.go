//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "2576c469935f5004055f64355006ac0756c9fde8d8c3608c773a80f859da6914"
