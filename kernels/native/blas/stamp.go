package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "67683ebd277f6f7a4f5b909342abb6e9bc4113ec50ab26596e2f8dbc32f78598"
