//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "6be80948dc81217d4170824f7eded01e9301de0dc55de29cb11e1e023a080ba3"
