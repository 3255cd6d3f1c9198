//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "71c13bd0f4e9f627e9daacd24d074c3a7a762842e0029bd8e64e6d6e853faad9"
