//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "2d3d1b7ae4c5f66d9b0c3ef182373d522eae83d176fd2c8849a52d249c6420aa"
