//go:build arm64

package dotprod

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "aa3d41bf91906d3b69269bcfe52758bf97b73a8893e7ebcf3129b2eb3e4b5515"
