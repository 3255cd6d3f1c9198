package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "3d97fc7a53b9c0d3461c48ed6c54975aecccc4daa41f5971546116f393cb4ae7"
