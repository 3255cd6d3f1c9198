//go:build arm64

package neon

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "11ae2c583cfcdfc2f972d117baae484b188942321dc43dbe1790f36339fb204e"
