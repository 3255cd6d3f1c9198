//go:build amd64

package avx2

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "30b441ee4e131d66c4e0d23b9919d00c07bc60d47196d12e47ef548d311ea775"
