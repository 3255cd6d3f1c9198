//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "62072edc07d4ab7ae8b20d3543a4cfa7cb8985fcc3b6beffc23fa47ab384b624"
