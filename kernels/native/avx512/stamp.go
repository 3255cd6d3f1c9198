//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "8620d105f440bf706d52626c08faee3a8210fb147461e59e9caad417a77e2feb"
