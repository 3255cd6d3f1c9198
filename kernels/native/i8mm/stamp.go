//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "a2ee1b87e4cce2f83b97cca3340a708e68fa7a81e3f9acf9f5a1139938cd00d2"
