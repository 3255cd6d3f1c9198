//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "e4ac41745a13b380b596b8eb693edc40003586569f1ac7ee0fcb91f7f82eed62"
