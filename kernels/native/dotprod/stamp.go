//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "2b74865e7bf8c17ffb4cace683310301e1767103fead42b5d7ca9cb5c89dfce9"
