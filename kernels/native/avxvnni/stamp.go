//go:build amd64

package avxvnni

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "e8dfdbdeb476287891d39ee1452c7527dd9de1a557369931dd707c273ac8e649"
