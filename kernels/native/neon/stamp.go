//go:build arm64

package neon

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "3a7fb55af3aca4a472f3e1d7561fd83bed6e6c988a3dc96a7be7e9ecc4f8a919"
