//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "02e59e8687f49dbdadceb06b68ad966e1148ebe34d188af1861d3f6e75f3d81e"
