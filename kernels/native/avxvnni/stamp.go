//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "eb7a44a363eaaa9a44a5b507cff03355f719328690311e62d3fb5d4c725c8f75"
