//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "bb5ecee032bfca83aee1d6f10a53587df4927af96772a0805aa92985ab9edc4a"
