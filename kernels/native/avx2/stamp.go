//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "ac2bf98bccccde85db237c15864e6fa57a653e2e7eafdb903a3924f1af43ad27"
