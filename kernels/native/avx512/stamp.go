//go:build amd64

package avx512

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "1e7af6fdc878bb76973d04bbee087c615fdf0ea7d43ed23a91fbeb876ad58197"
