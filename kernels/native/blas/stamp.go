package blas

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "20a3551c882f746dafe37f0529a38b45959c837f437cd21e5870703338c05725"
