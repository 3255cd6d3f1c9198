//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "ead473f3d7c3515857b68f0ae1918aa6b1827e2feaa8cb4584f50ec35d63f7b0"
