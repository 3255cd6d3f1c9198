package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "f05f614d7457ba8e5e9cd2f38088e466977b3bac6b068c524161ddf32006c12e"
