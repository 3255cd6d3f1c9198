//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "e7b1b4b4bd244f6e4a145742b245749115904beecabdf6af37544d51685b92cf"
