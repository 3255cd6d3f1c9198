package blas

// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.
const Stamp = "dc6be2f14f1669dc788bd03b891b3177969ccb3c97bc8b6d525e6712064671e2"
