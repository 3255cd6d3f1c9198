//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "5b1d3fccdc8e272782df8ea72dd5058d4200b4332e4dec708ac981b17aabdcaa"
