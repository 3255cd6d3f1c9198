//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "83d7bd929063c7c132836347f64b57a902d730f4a270ae1e08ce99e7c5d5c429"
