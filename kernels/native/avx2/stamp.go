//go:build amd64

package avx2

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "d6adc544803aa6053dbc89018374bd4bc10b991b9ca24c3e8dc6a32a0481c728"
