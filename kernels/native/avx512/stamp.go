//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "64cce28280856586bf5ef797e7e113e31b9ccadfb18d9a2f3451682bf45aa4dd"
