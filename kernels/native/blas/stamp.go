package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "18474be6e9a6871e4623d522f5a5281db02bf4a4d07ff4f3835ae1c51ec0d2f2"
