package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "d78833be95d37638a42a47e265d70f8c374717ffd8a6ef05644980f73a574903"
