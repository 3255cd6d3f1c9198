package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "4dd3f300eeb13c1f8979eaf96fc0f30bf6a514de6491ad53761cdfbd52f483fe"
