package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "0dba42bb7e529a09d2a4f00878db08261a30b421aa3b36da6449c6d0eecf92a9"
