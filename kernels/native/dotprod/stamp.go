//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "004f1c74f98c4bc72578c890043d10ea4bc0c8566a0be3a3d2760acf444063f2"
