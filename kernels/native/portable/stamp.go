package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "1a5c294625a528cc1dec25e6849c3fea4cd17a4190ae0d75c218862ec380e084"
