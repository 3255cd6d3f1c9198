//go:build amd64

package avx2

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "4c0bc5accdb151a1fae61f30f74651cd3707384d4bd2834a5d1633bb8120e8d8"
