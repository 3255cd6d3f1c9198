package kernels

// HostScratch is the argument index at which a dispatch of the CPU's binds memory that
// its kernel may use as it likes. No kernel has so many arguments.
const HostScratch = 30

// How a BLAS computes a product (kernels/native/blas): panels of so many rows of a
// weight, widened to floats, with so many tokens at a time, in up to so many lanes at
// once. The lanes keep the matrix units of every cluster of cores busy while panels are
// widened.
const (
	panelRows   = 128
	panelTokens = 256
	panelLanes  = 4
)

// PanelScratch returns the bytes of scratch for a product of x[tokens, k] with weights of
// so many rows each; the two of a pair meet in one result.
func PanelScratch(tokens, k int64, rows []int64, pair bool) int64 {
	var tallest, panels int64
	for _, n := range rows {
		tallest = max(tallest, n)
		panels += (n + panelRows - 1) / panelRows
	}
	sides := int64(1)
	if pair {
		sides, panels = 2, panels/2
	}
	lane := sides * min(tallest, panelRows) * (k + min(tokens, panelTokens))
	return 4 * lane * min(panels, panelLanes)
}
