package device

import (
	"fmt"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// checkPipelines returns ErrPipeline for a Plan with a launch that exceeds an Apple GPU's threads
// or threadgroup memory, which Metal would report late, or abort for. It checks each pair of kernel
// and threadgroup size once. Kernels that are not in the table are left to the driver.
func checkPipelines(plan *plan.Plan) error {
	type variant struct {
		kernel string
		group  [3]uint32
	}
	seen := map[variant]bool{}
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		for j := range ph.Dispatches {
			d := &ph.Dispatches[j]
			if v := (variant{d.Kernel, d.Group}); seen[v] {
				continue
			} else {
				seen[v] = true
			}
			k, ok := kernels.Lookup(d.Kernel)
			if !ok {
				continue
			}
			if message := refuses(k, d.Group, 0); message != "" {
				return fmt.Errorf("%w: %w", ErrPipeline,
					&DispatchError{Phase: ph.Name, Dispatch: j, Label: d.Label(), Kernel: d.Kernel, Message: message})
			}
		}
	}
	return nil
}

// refuses returns why a kernel cannot run in threadgroups of a size, with dynamic bytes of
// threadgroup memory beside its own; "" if it can.
func refuses(k *kernels.Kernel, group [3]uint32, dynamic int) string {
	threads := uint64(group[0]) * uint64(group[1]) * uint64(group[2])
	if threads == 0 || threads > uint64(k.MaxThreads) {
		return fmt.Sprintf("threadgroups of %d threads; it runs with 1 to %d", threads, k.MaxThreads)
	}
	if bytes := k.ThreadgroupBytes + dynamic; bytes > kernels.MaxThreadgroupBytes {
		return fmt.Sprintf("%d bytes of threadgroup memory (%d its own, %d by the launch); an Apple GPU has %d",
			bytes, k.ThreadgroupBytes, dynamic, kernels.MaxThreadgroupBytes)
	}
	return ""
}
