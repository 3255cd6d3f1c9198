//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "cff7b15a5b0d99d2a0cec597c146308ede1896cfbde2623743478377586a8cbc"
