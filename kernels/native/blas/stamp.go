package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "8f58db70d543109dd4747ab36ddffbc29bd445c4414fe0bbf9e02b742d551b18"
