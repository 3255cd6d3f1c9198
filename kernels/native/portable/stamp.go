package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "4f7641d5474d471ca26397cf73a48144ee7777d8d8d74c410092da0fc39221c4"
