//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "c72282d0a0742882a0b56273f37bdba84cbc596592ac1c777e987d6718f8afbb"
