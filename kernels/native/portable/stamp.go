package portable

// Written by `go test ./kernels/native -run Stamp -update`.
const _ = "433c0e7794bdcaf74cf86a1961baa2c5e2edffacb8a29b13c424af4d2de7b3c7"
