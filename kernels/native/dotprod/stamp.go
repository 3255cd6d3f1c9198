//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "582f9c2ff3c2576a43ddb7a4720e8bd3e1b3accda21030d05c4069f97fe1b986"
