//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "e9c6895339fef108a90a4b008978b548af538e5bbff5b6379c11e05ef66dfa26"
