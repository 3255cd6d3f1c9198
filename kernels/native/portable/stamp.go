package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "619cc6e2e6df0248add1d8b4cef30995b7f0a3ab2eb925de2ff8546276d0a99e"
