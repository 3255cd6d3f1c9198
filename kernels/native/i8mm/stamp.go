//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "2ecdc12553245b57e783f10cbb623a67b00b846756dc96c6c1deec0593d97642"
