package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "6c2843ed7fab2d21f055d9d559c4ab136067ca341eaef7e0686ef5293fa40fbd"
