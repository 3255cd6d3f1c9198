package portable

// Stamp is the hash of the sources, written by `go test ./kernels/native -run Stamp -update`.
const Stamp = "0977ee5d52e5f954f576ece1536f2f7edd3f403ff216959ed3bbc14e21235f84"
