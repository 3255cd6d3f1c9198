package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "b82f071695d28eaa553c358042f7d8e9be269525a096a526ece9c2b746ce04e3"
