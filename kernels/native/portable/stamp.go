package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "52d9cb651988b1e113a25ec48d81432693024508d2f384e897d0a64974cb4623"
