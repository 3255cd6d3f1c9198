//go:build arm64

package neon

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "8c1f760698ba8022ae4002ade73c02eb4144cb0bf5589461c1c3a3470ca5adb7"
