package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "cdb30b43d0adfdd13e22c2e725ca148f0506809fc2a142a9a7fdc71fb35de6c3"
