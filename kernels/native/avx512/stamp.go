//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "70630e051cf9114906976ea18611432af888a26a401d65f472013cd7d2795142"
