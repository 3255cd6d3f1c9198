//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "3b29e7da0946f8557c0348f714b9e7fb4bc5fcfd0772ef446562295b5c41819f"
