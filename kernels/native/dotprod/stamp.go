//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "5f12e83173cddcc7a05fe4305a817099696c09d5f6ec544798c34a26e088be44"
