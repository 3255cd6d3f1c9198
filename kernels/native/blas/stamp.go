package blas

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "dc525e936ff5451c6dc69fb08a3d868d6b60e966adf126268490f1cc38f9be94"
