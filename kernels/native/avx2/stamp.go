//go:build amd64

package avx2

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "e0565c2ae92c062e5b706fa12c948907f05f08290f9be80c9f9c0820fa08c029"
