//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "e982ca795cedc87e8d7412982ec87975379c0f9edaf448232adf9cebd2c0af4d"
