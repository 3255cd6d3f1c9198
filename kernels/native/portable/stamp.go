package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "6b310bbf2d693d9c16a66df069b73e44bc6015efbdb2a9b259c284bb08b11506"
