//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "9518b398269f19c091ba66e63d4d9f16571e51f748fc25bb0f8fee7789c0269a"
