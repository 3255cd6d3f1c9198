//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "baed27fc7737a74b01cbd0ba4a5dfdd371910d2628b73cfdd3931037be818163"
