package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "0197b615ae9dca66f51be36ead6b512ed61428cb8352e1c6998f593c07242c49"
