package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "2d307b61b21a0bc23a8339fbc9bb80cae4bdb74e32a8566f48d4164a0c0e7cdb"
