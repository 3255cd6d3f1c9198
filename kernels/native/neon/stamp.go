//go:build arm64

package neon

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "9c861dbd850edb53b1a5685bcb0967827fd9d63f540c35806c01c4ba0239cfbc"
