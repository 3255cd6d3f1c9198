//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "4e23fa2fc64d2d4d300bb00f57fad0d21f1b9042b13e1f2f577e273b7f7348bc"
