//go:build arm64

package dotprod

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "b4d29b62ed5d1c329df9d5fb7c877ca4e108c3212932f5435cbac65707afdd22"
