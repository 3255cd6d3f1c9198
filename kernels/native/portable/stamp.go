package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "daf835aa91cdfd75f4d2a974dd75755035f2d164c5930c54db55610b83984ae4"
