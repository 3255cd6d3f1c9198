//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "70630e051cf9114906976ea18611432af888a26a401d65f472013cd7d2795142"
