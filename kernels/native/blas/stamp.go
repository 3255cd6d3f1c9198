package blas

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "9c48f64a95c4ca2e4de3c912119b935923d46dd7deeab35d3ce04c99cd8ebc52"
