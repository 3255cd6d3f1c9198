//go:build amd64

package avx2

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "89bd5f3ceab5043b285a4caf3dda1b3bd53c5c9386d2c111a19e1c0912b4588f"
