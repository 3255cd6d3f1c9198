//go:build arm64

package neon

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "af5dbdc6be06fb77680f21dc96d63a7859e59660a9c0c7ba31747bd22b9e472e"
