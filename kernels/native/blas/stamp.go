package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "054e83db72cab1b5474367883bd8759401e5d0e12c34745da75f5efe98c58c39"
