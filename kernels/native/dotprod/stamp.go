//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "fc11b5882050a3d0dfdf2e4d9dd6e04df2312f6bed235148d4364196bb14d0d4"
