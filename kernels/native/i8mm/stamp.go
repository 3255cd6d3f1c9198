//go:build arm64

package i8mm

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "f1ca1ef2ba35d05bafbb6b34287a7d0d97540b87203731cd287705c9551d24dc"
