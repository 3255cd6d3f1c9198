package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "528855a45655b1dd2219a03c6cabd7201c0cf48ba741ce19382d8e4ecb5b5cb5"
