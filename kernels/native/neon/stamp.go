//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "615fc39cb1babf40cae1f30efde7ce4a8b7243de6fc0331eab75fb19ef0ce282"
