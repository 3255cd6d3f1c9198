//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "54e301f8aa280c84dbfc5e13bf157c533034e68723b5c0a33acffce5419b7ead"
