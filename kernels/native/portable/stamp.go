package portable

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "561c9230770bcee220d188864c32d0a30b271152cb1e3b3fc7bc57d3c5d61e3c"
