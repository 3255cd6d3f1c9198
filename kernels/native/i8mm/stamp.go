//go:build arm64

package i8mm

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "2b546d3b46b4c5e3de0c738af2026f72aac4706dce4ad10d06bfc8ebf41550b4"
