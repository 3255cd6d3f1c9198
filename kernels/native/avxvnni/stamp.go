//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "c182f73b840a9fc830cd68e72528ee13701363bb103cfa05573b92133d3f2112"
