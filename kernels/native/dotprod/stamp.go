//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "1664dac895b1b3ee226953616a9fd056e751c619ba779d6db2e98419136d13f0"
