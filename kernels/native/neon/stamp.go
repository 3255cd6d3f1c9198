//go:build arm64

package neon

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "fecaf28473a2890e8d698a7599231a7903e02f2d96674e3fe2e58463d0f8bef3"
