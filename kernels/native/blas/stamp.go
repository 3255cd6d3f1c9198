package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "6557b7822cd54fca4aea1a4851349c5a437ae316f7eede5a7fe11333769b3f50"
