package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "29ed09d7786db014e5cfb127694a7ee29dc56fcb895ac5a3cd4ce33e59b880de"
