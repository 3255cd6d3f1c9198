package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "ea41cca67685d1e04e0c4258148b7295ab47e3fe12eb3d7cd2f7fc7e4a42a721"
