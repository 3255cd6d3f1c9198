//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "79b4e57aabfe5464b89961504f9b1f1745107027cc1b2d0e6f147c9d6c85bc02"
