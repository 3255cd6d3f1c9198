//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "b4a68d49539587507f4892bc03994bf518a2a20b8b236a13a6155c4ea4489d1e"
