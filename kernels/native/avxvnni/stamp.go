//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "f37c34b837a0f9030c16a62343d3e93cd5f8786bcc27e84c72ec722be69e6470"
