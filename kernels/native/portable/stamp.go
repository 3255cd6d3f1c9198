package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "27e336af40ccee0f2691e7c495160d26c920a4d22ef696dbe2a6492d8016a7f4"
