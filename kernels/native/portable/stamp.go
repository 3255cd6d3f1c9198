package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "85a37ab7a192d1e5032c802353d07a0ef5fa22d3d8f99d12aaaab46ab83af58e"
