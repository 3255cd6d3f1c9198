//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "28f2261e059a089b2b74b4566ac768894b5bfb50ace0f102d9eaf47aa74410c6"
