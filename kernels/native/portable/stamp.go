package portable

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "496a03303a82b06ddeb6b252affca3c3ab856c651cea98f7e85a37dadc0ed62a"
