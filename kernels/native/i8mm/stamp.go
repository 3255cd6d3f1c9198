//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "779818377276f9a55e75f9df8aa7d34e00fdd835abd247f2fed8ad3bd7af9b9a"
