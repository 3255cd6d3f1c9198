package blas

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "267c00f1a9cc8de871ae68dd3a22dee520a2d427f61792763cb38072b48dc9ba"
