//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "587a174882aa8e477f3196a9b394265f336958f5374cd0b746425ba808d35b4f"
