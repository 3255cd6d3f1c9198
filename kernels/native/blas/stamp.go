package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "7822798fd399cd3fcce0c319276e81d020445017cee860920b0909508a1a259a"
