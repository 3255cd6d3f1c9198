package metal

import "runtime"

// DefaultThreads returns how many threads a device starts unless told otherwise:
// one for each physical core that this process may use, and no more than the
// control group's CPU quota. A second thread on a core shares its vector units,
// which the kernels keep busy.
func DefaultThreads() int { return max(1, min(runtime.NumCPU(), availableCores())) }
