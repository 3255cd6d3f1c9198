//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "90a7301f8a01863e768c8c5f9dba7060561ad79deff2c2fe3a388612d1ced600"
