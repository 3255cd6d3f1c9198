//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "090d135cd6011591894493546b104fc1320d4710e6282d51f468ed438d4d321a"
