//go:build amd64

package avx512

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "f84b4ec48d2344af03ca28e60fc6c7e29dcf5c12488815855c6fdeea328b8b2d"
