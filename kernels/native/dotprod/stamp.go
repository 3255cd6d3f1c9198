//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "5df62162582bce67621ba35b6f4930757e76de7c8b5d895f55061dedd0f24784"
