//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "6892b077c1794fe0ccfee095d4b39e1c1bbb9e730d384b64e273b49880d0131c"
