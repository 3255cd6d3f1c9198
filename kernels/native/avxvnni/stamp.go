//go:build amd64

package avxvnni

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "b6c80956222955f34fe8972adc65298d70c1a477dfb5ec6ad0ffa5c3b8d73a3f"
